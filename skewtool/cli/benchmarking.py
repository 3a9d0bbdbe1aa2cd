"""`bench`."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import skewtool
from skewtool.cli.group import note, print_json
from skewtool.cli.options import JSON, PATH, corpus_options, layout_names, open_part
from skewtool.errors import SkewtoolError

if TYPE_CHECKING:
    from skewtool.bench import BenchResult

__all__ = ["bench"]

DTYPES = ("float32", "float64", "bfloat16", "float16")


@click.command()
@click.option("--corpus", multiple=True, type=PATH, help="Batches come from here, real ones, in order.")
@click.option("--map", "maps", multiple=True, type=PATH, help="Maps to measure. Default: two are made from the first 80 %.")
@click.option("--shards", type=click.IntRange(1, 1024), default=4, show_default=True, help="Ranks. Under torchrun: its own.")
@click.option("--hidden", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--tokens-per-rank", type=click.IntRange(min=1), default=4096, show_default=True)
@click.option("--head-tokens", type=click.IntRange(min=1), default=64, show_default=True,
              help="Per rank, of an LM-head step.")  # fmt: skip
@click.option("--element", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of the tables.")
@click.option("--steps", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--layouts", help="Only these, separated by commas.")
@click.option("--backend", type=click.Choice(("gloo", "nccl")), help="Default: NCCL where each rank has a GPU, else gloo.")
@click.option("--vocab-size", type=click.IntRange(min=1), help="Default: that of the maps.")
@click.option("--extra-rows", default="10%", show_default=True, help="Of the map with copies that is made.")
@click.option("--plot", type=PATH, help="Write bar charts to this PNG or SVG file.")
@click.option("--calibrate", type=PATH, metavar="FILE", help="Only measure latency and bandwidth, for `cost --calibration`.")
@corpus_options
@JSON
def bench(
    corpus: tuple[Path, ...], maps: tuple[Path, ...], shards: int, calibrate: Path | None, plot: Path | None,
    part: tuple[float, float] | None, layouts: str | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Run steps of every layout on real collectives, side by side, beside what was predicted."""
    from skewtool import bench as benches

    shards = int(os.environ.get("WORLD_SIZE", shards))
    backend = options.pop("backend") or benches.usual_backend(shards)
    if calibrate is not None:
        found = benches.run_calibration(shards, backend)
        calibrate.write_text(json.dumps(found) + "\n")
        return print_json(found) if as_json else click.echo(f"calibration: {calibrate}")
    return None
