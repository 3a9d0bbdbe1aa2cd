"""`plan`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

import skewtool
from skewtool.cli.group import note, print_json
from skewtool.cli.options import BYTES_PER_ELEMENT, JSON, PATH

if TYPE_CHECKING:
    from skewtool.skew import Plan

__all__ = ["plan"]

_UNITS = {"": 1, "b": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "ki": 1024, "mi": 1024**2, "gi": 1024**3,
          "ti": 1024**4}  # fmt: skip


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Bytes from 2GiB, 500MB or 123456."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", value.strip().lower())
    size = int(float(found[1]) * _UNITS[found[2]]) if found and found[2] in _UNITS else 0
    if size < 1:
        raise click.BadParameter(f"{value!r} is no size such as 2GiB, 500MB or a number of bytes")
    return size


_COLUMNS = {
    "layout": "layout",
    "weight_bytes": "weight",
    "temporary_bytes": "buffers",
    "busiest_forward_bytes": "forward",
    "busiest_backward_bytes": "backward",
    "gradient_sync_bytes": "sync of copies",
    "busiest_bytes_per_update": "per update",
    "extra_rows_per_shard": "extra rows",
    "fits": "fits",
}
"""Keys of a layout in the order and under the names of the printed table."""


@click.command()
@click.argument("profile", type=PATH)
@click.option("--hidden", required=True, type=click.IntRange(1, 2**31 - 1), help="Elements of an embedding row.")
@click.option("--shards", required=True, type=click.IntRange(1, 2**20), help="Number of shards, as many as ranks.")
@click.option("--vocab", type=click.IntRange(min=1), help="Rows of the table, padding included. Default: the profile's ids.")
@click.option("--tokens-per-rank", type=click.IntRange(1, 2**31 - 1), help="Default: the profile's longest window.")
@click.option("--dtype", type=click.Choice(list(BYTES_PER_ELEMENT)), default="bf16", show_default=True,
              help="Of rows and gradients.")  # fmt: skip
@click.option("--memory-per-shard", callback=_size, metavar="SIZE",
              help="For weight and lookup buffers, as 2GiB. Default: no limit.")  # fmt: skip
@click.option("--extra-rows", default="10%", show_default=True, help="Room for copies per shard: rows, or 10%.")
@click.option("--lookups-per-update", type=click.IntRange(min=1),
              help="Micro-steps per optimizer update. Default: inference, no gradients.")  # fmt: skip
@JSON
def plan(
    profile: Path, hidden: int, shards: int, vocab: int | None, tokens_per_rank: int | None, dtype: str,
    memory_per_shard: int | None, extra_rows: str, lookups_per_update: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Advise on a layout for the text of a PROFILE: bytes of the busiest rank and memory of each, and which to take."""
    from skewtool.skew import plan as made_by

    loaded = skewtool.Profile.load(profile)
    made = made_by(
        loaded, num_shards=shards, hidden=hidden, bytes_per_element=BYTES_PER_ELEMENT[dtype], vocab_size=vocab,
        tokens_per_rank=tokens_per_rank, memory_per_shard=memory_per_shard, extra_rows=extra_rows,
        lookups_per_update=lookups_per_update,
    )  # fmt: skip
    for each in loaded.notes:
        note(each)
    if as_json:
        return print_json(made.to_json() | {"dtype": dtype})
    _print_plan(made, dtype)
    return None


def _print_plan(made: "Plan", dtype: str) -> None:
    sizes, lookups = made.sizes, made.lookups_per_update
    learning = "inference" if lookups is None else f"lookups per update: {lookups:,}"
    click.echo(
        f"{sizes.vocab_size:,} rows of {sizes.hidden:,} {dtype}, shards: {sizes.num_shards:,}, tokens per rank and step: "
        f"{made.tokens_per_rank:,}, {learning}"
    )
    click.echo("MiB per shard; forward and backward: the busiest rank, in a lookup step\n")
    table = made.table()[list(_COLUMNS)]
    in_bytes = [name for name in _COLUMNS if "_bytes" in name]
    table[in_bytes] /= 2**20
    table["fits"] = table["fits"].map({True: "yes", False: "no"})
    click.echo(table.rename(columns=_COLUMNS).to_string(index=False, float_format=lambda value: f"{value:,.2f}"))
    click.echo()
    for sentence in made.advice:
        click.echo(sentence)
