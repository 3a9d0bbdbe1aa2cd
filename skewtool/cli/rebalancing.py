"""`rebalance`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import skewtool
from skewtool.cli.group import print_json
from skewtool.cli.options import JSON, PATH, check_output

if TYPE_CHECKING:
    from skewtool.sharding import Rebalanced, ShardMap

__all__ = ["rebalance"]

_POINTS = 8


def _moves_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix not in (".csv", ".json"):
        raise click.BadParameter(f"{value} must end in .csv or .json")
    return value


@click.command()
@click.argument("shard_map", metavar="MAP", type=PATH)
@click.argument("profile", type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Map file to write.")
@click.option("--shards", type=click.IntRange(1, 2**20), help="Number of shards. Default: the map's.")
@click.option("--max-moved", default="1%", show_default=True, help="Rows that may change shard: a number, or 1%.")
@click.option("--load", type=click.Choice(["unique", "raw"]), default="unique", show_default=True,
              help="Distinct ids per rank and step, or every occurrence.")  # fmt: skip
@click.option("--tokens-per-rank", type=click.IntRange(1, 2**31 - 1), help="Default: the profile's longest window.")
@click.option("--real-vocab", type=click.IntRange(min=1),
              help="Ids from here on are padding. Default: the map's, or the tokenizer's where that is more.")  # fmt: skip
@click.option("--moves", type=PATH, callback=_moves_file, help="Write the list of moves, .csv or .json.")
@JSON
def rebalance(
    shard_map: Path, profile: Path, output: Path, shards: int | None, max_moved: str, load: Any,
    tokens_per_rank: int | None, real_vocab: int | None, moves: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """A new map near an old MAP: for the load of a new PROFILE, other shards, or a vocabulary that has grown.

    At most --max-moved rows change shard; new ids do not count. The list of moves, id,from_shard,from_slot,to_shard,to_slot,
    is exact: moved at once, these rows turn the old table into the new one.
    """
    from skewtool.sharding import rebalance as library_call

    if moves == output:
        raise click.UsageError(f"the map and the moves need files of their own, got {output} for both")
    for target in (output, *([] if moves is None else [moves])):
        check_output(target, shard_map, profile)
    old = skewtool.ShardMap.load(shard_map)
    made = library_call(
        old, skewtool.Profile.load(profile), num_shards=shards, max_moved=max_moved, load=load,
        tokens_per_rank=tokens_per_rank, real_vocab=real_vocab,
    )  # fmt: skip
    made.shard_map.save(output)
    if moves is not None:
        _write_moves(made, moves)
    found = _json(old, made)
    if as_json:
        return print_json(found)
    click.echo(
        f"{made.moved_rows:,} of {old.vocab_size:,} rows change shard ({made.forced:,} for equal rows, {made.chosen:,} for "
        f"load), {made.new_rows:,} are new, {made.slot_changes:,} only change slot"
    )
    click.echo(
        f"{load} load: busiest / mean {found['imbalance_before']:.6f} on {old.num_shards} shards before, "
        f"{found['imbalance']:.6f} on {found['shards']} now; no map of equal rows below {found['lower_bound']:.6f}"
    )
    for moved, imbalance in _few(found["curve"]):
        click.echo(f"  {moved:>9,} rows moved: {imbalance:.6f}")
    click.echo(f"fingerprint {made.shard_map.fingerprint}")
    return None


def _json(old: "ShardMap", made: "Rebalanced") -> dict[str, Any]:
    return {
        "shards": made.shard_map.num_shards,
        "vocab_size": made.shard_map.vocab_size,
        "imbalance_before": made.before.imbalance,
        "imbalance": made.after.imbalance,
        "lower_bound": made.after.lower_bound,
        "gap": made.after.gap,
        "moved_rows": made.moved_rows,
        "forced_rows": made.forced,
        "new_rows": made.new_rows,
        "slot_changes": made.slot_changes,
        "curve": [list(point) for point in made.curve],
        "fingerprint_before": old.fingerprint,
        "fingerprint": made.shard_map.fingerprint,
    }


def _few(curve: list[Any]) -> list[Any]:
    """At most _POINTS points, the first and the last among them."""
    last = len(curve) - 1
    return [curve[place] for place in sorted({last * number // (_POINTS - 1) for number in range(_POINTS)})]


def _write_moves(made: "Rebalanced", path: Path) -> None:
    import json

    import numpy as np

    from skewtool.sharding import MOVE_COLUMNS
    from skewtool.storage import replacing

    with replacing(path) as temporary:
        if path.suffix == ".csv":
            np.savetxt(temporary, made.moves, fmt="%d", delimiter=",", header=",".join(MOVE_COLUMNS), comments="")
            return
        new = made.shard_map
        temporary.write_text(
            json.dumps({"shards": new.num_shards, "home_slots": new.home_slots, "real_vocab": new.real_vocab,
                        "columns": MOVE_COLUMNS, "moves": made.moves.tolist()}) + "\n"
        )  # fmt: skip
