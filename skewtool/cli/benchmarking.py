"""`bench`."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewtool.cli.group import print_json
from skewtool.cli.options import CORPUS, JSON, PATH, check_output, corpus_options, layout_names, open_part

if TYPE_CHECKING:
    from skewtool.bench import BenchResult
    from skewtool.skew.traffic import Backend

__all__ = ["bench"]

DTYPES = ("float32", "float64", "bfloat16", "float16")


@click.command()
@click.option("--corpus", multiple=True, type=CORPUS, help="Batches come from here, real ones, in order.")
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
    corpus: tuple[Path, ...], maps: tuple[Path, ...], shards: int, hidden: int, tokens_per_rank: int, head_tokens: int,
    element: str, steps: int, layouts: str | None, backend: "Backend | None", vocab_size: int | None, extra_rows: str,
    plot: Path | None, calibrate: Path | None, part: tuple[float, float] | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Run steps of every layout on real collectives, side by side, beside what was predicted.

    Starts ranks on this machine, on gloo; under torchrun it is one of the ranks, on NCCL where each has a GPU.
    """
    from skewtool import bench as benches

    shards = int(os.environ.get("WORLD_SIZE", shards))
    backend = backend or benches.usual_backend(shards)
    for output in (plot, calibrate):
        if output is not None:
            check_output(output)
    if calibrate is not None:
        return _calibrate(shards, backend, calibrate, as_json)
    if not corpus:
        raise click.UsageError("give --corpus, for batches; or --calibrate")
    chosen = benches.BenchOptions(
        shards=shards, hidden=hidden, tokens_per_rank=tokens_per_rank, head_tokens=min(head_tokens, tokens_per_rank),
        dtype=element, steps=steps, backend=backend, extra_rows=extra_rows,
    )  # fmt: skip
    if layouts is not None:
        chosen = replace(chosen, layouts=tuple(name.strip() for name in layouts.split(",") if name.strip()))
    opened = open_part(corpus, part, **options)
    result = benches.run_bench(opened, chosen, layout_names(maps, list(chosen.layouts)), vocab_size=vocab_size)
    if result is None:  # another rank prints
        return None
    if plot is not None:
        _plot(result, plot)
    click.echo(result.to_json() if as_json else result.to_text())
    return None


def _calibrate(shards: int, backend: "Backend", output: Path, as_json: bool) -> None:
    from skewtool.bench import run_calibration

    found = run_calibration(shards, backend)
    if found is None:
        return None
    output.write_text(json.dumps(found) + "\n")
    if as_json:
        return print_json(found)
    click.echo(
        f"{backend}, {shards} ranks: latency {found['latency_seconds'] * 1e6:,.0f} us, bandwidth "
        f"{found['bandwidth_bytes_per_second'] * 8 / 1e9:.3f} Gbit/s; written to {output}"
    )
    return None


def _plot(result: "BenchResult", output: Path) -> None:
    from skewtool.report.bench_figure import bench_bars
    from skewtool.report.figures import render
    from skewtool.storage import replacing

    picture = render(bench_bars(result.content), output.suffix.removeprefix(".") or "png")
    with replacing(output) as temporary:
        temporary.write_bytes(picture)
