"""`cost`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

import skewtool
from skewtool.cli.group import note, print_json
from skewtool.cli.options import BYTES_PER_ELEMENT, JSON, PATH, layout_names

if TYPE_CHECKING:
    from skewtool.skew import Cost, LayoutCost, Link
    from skewtool.skew.traffic import Backend

__all__ = ["cost"]

_KINDS = {
    "embedding": "embedding, of {tokens:,} tokens",
    "head": "LM head with loss, of {tokens:,} tokens",
    "decoding": "choosing a token for each of {tokens:,} rows of logits on vocabulary shards",
}


@click.command()
@click.option("--tokens", required=True, type=click.IntRange(1, 2**31 - 1), help="Of all ranks, in a step.")
@click.option("--vocab", required=True, type=click.IntRange(1, 2**31 - 1), help="Rows of the table, padding included.")
@click.option("--hidden", required=True, type=click.IntRange(1, 2**24), help="Elements of an embedding row.")
@click.option("--shards", required=True, type=click.IntRange(1, 2**13), help="Number of shards, as many as ranks.")
@click.option("--dtype", type=click.Choice(list(BYTES_PER_ELEMENT)), default="bf16", show_default=True,
              help="Of tables and hidden states.")  # fmt: skip
@click.option("--profile", "profile_file", type=PATH, help="Measure lookups on its windows of tokens / shards tokens.")
@click.option("--map", "maps", multiple=True, type=PATH, help="Judge this map; without --profile under even loads.")
@click.option("--backend", type=click.Choice(("gloo", "nccl")), help="Default: that of the calibration, or nccl.")
@click.option("--latency", type=click.FloatRange(min=0), metavar="US", help="Microseconds of a collective.")
@click.option("--bandwidth", type=click.FloatRange(min=0, min_open=True), metavar="GBIT",
              help="Gigabits per second that a rank sends, and receives.")  # fmt: skip
@click.option("--calibration", type=PATH, help="Both, as `bench --calibrate` measured them.")
@click.option("--top-k", type=click.IntRange(1, 2**31 - 1), default=50, show_default=True, help="Candidates of top-k.")
@click.option("--raw", is_flag=True, help="With --profile: routed layouts also without sparing repeats.")
@click.option("--extra-rows", default="10%", show_default=True, help="Of the map with copies made from a profile.")
@click.option("--optimizer-bytes", type=click.IntRange(0, 64), default=0, show_default=True,
              help="Of its state for each weight element: 8 for Adam in float32.")  # fmt: skip
@JSON
def cost(
    tokens: int, vocab: int, hidden: int, shards: int, dtype: str, profile_file: Path | None, maps: tuple[Path, ...],
    backend: "Backend | None", latency: float | None, bandwidth: float | None, calibration: Path | None, top_k: int,
    raw: bool, extra_rows: str, optimizer_bytes: int, as_json: bool,
) -> None:  # fmt: skip
    """Memory, communication and buffers of every embedding and LM-head layout."""
    from skewtool.skew import TableSizes
    from skewtool.skew import cost as made_by

    if raw and profile_file is None:
        raise click.UsageError("--raw needs a --profile: without one there are no repeats to spare")
    backend, link = _link(backend, latency, bandwidth, calibration)
    profile = None if profile_file is None else skewtool.Profile.load(profile_file)
    made = made_by(
        TableSizes(shards, vocab, hidden, BYTES_PER_ELEMENT[dtype]), tokens, profile=profile, backend=backend, link=link,
        maps=layout_names(maps, ["contiguous", "strided"]), raw=raw, top_k=top_k, extra_rows=extra_rows,
        optimizer_bytes_per_element=optimizer_bytes,
    )  # fmt: skip
    for each in () if profile is None else profile.notes:
        note(each)
    if as_json:
        return print_json(made.to_json() | {"dtype": dtype})
    _print_cost(made, dtype)
    return None


def _link(
    backend: "Backend | None", latency: float | None, bandwidth: float | None, calibration: Path | None
) -> "tuple[Backend, Link | None]":
    """The backend, and latency and bandwidth where they are known."""
    from skewtool.skew import Link, read_calibration

    if calibration is not None:
        if latency is not None or bandwidth is not None:
            raise click.UsageError("give either --calibration or --latency and --bandwidth")
        measured, link = read_calibration(calibration)
        if backend not in (None, measured):
            raise click.UsageError(f"the calibration is of {measured}, not of {backend}; leave out --backend")
        return measured, link
    if (latency is None) != (bandwidth is None):
        raise click.UsageError("a time needs both --latency and --bandwidth")
    known = None if latency is None or bandwidth is None else Link(latency * 1e-6, bandwidth * 1e9 / 8)
    return backend or "nccl", known


def _print_cost(made: "Cost", dtype: str) -> None:
    sizes, link = made.sizes, made.link
    click.echo(
        f"{sizes.vocab_size:,} rows of {sizes.hidden:,} {dtype}, shards: {sizes.num_shards:,}, tokens: {made.num_tokens:,} "
        f"in all, backend: {made.backend}"
    )
    click.echo("MiB per device; moved: the most that a rank sends or receives in a step, and the mean")
    if link is not None:
        speed = f"{link.latency_seconds * 1e6:,.1f} us a collective and {link.bytes_per_second * 8e-9:,.2f} Gbit/s a rank"
        click.echo(f"step: forward, backward and update by {speed}, without computation")
    for kind, title in _KINDS.items():
        layouts = [each for each in made.layouts if each.kind == kind]
        click.echo(f"\n{title.format(tokens=made.num_tokens)}")
        click.echo(_table(kind, layouts, link is not None))
    click.echo()
    for sentence in made.notes:
        click.echo(sentence)


def _table(kind: str, layouts: "list[LayoutCost]", timed: bool) -> str:
    """Columns that are 0 for all of a kind are left out."""
    columns = {"layout": [each.layout for each in layouts]}
    figures = {
        "weight": [each.weight_bytes for each in layouts],
        "optimizer": [each.optimizer_bytes for each in layouts],
        "logits": [each.logits_bytes for each in layouts],
        "buffers forward": [each.forward_buffer_bytes for each in layouts],
        "backward": [each.backward_buffer_bytes for each in layouts],
        "update": [each.update_buffer_bytes for each in layouts],
    }
    for phase in ("forward", "backward", "update"):
        moved = [getattr(each, phase) for each in layouts]
        figures[f"moved {phase}"] = [each.busiest_bytes for each in moved]
        figures[f"{phase} mean"] = [each.sent_mean for each in moved]
    columns |= {name: [f"{each / 2**20:,.2f}" for each in found] for name, found in figures.items() if any(found)}
    columns["calls"] = [f"{each.collectives:,.0f}" for each in layouts]
    if timed:
        columns["step ms"] = [f"{(each.step_seconds or 0) * 1e3:,.3f}" for each in layouts]
    widths = [max(map(len, [name, *cells])) for name, cells in columns.items()]
    names = [_heading(name) for name in columns]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in [names, *zip(*columns.values(), strict=True)]
    )


def _heading(name: str) -> str:
    return "mean" if name.endswith(" mean") else name
