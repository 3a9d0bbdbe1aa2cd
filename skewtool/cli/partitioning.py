"""`partition`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import skewtool
from skewtool.cli.group import print_json, row_range
from skewtool.cli.options import JSON, PATH, check_output

if TYPE_CHECKING:
    from skewtool.sharding import Partition

__all__ = ["partition"]


@click.command()
@click.argument("profile", type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Map file to write.")
@click.option("--shards", required=True, type=click.IntRange(1, 2**20), help="Number of shards.")
@click.option("--strategy", default="balanced", show_default=True, help="contiguous, strided, snake, random, balanced.")
@click.option("--load", type=click.Choice(["unique", "raw", "steps"]), default="unique", show_default=True,
              help="Distinct ids per rank and step, every occurrence, or the worst of sampled steps.")  # fmt: skip
@click.option("--tokens-per-rank", type=click.IntRange(1, 2**31 - 1), help="Default: the profile's longest window.")
@click.option("--extra-rows", default="0", show_default=True, help="Room for copies per shard: rows, or 10%.")
@click.option("--shards-per-node", type=click.IntRange(min=1), help="Copies save traffic between nodes of this size first.")
@click.option("--real-vocab", type=click.IntRange(min=1), help="Ids from here on are padding. Default: the tokenizer's.")
@click.option("--pad-to", type=click.IntRange(min=1), default=1, show_default=True, help="Home slots in multiples of this.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random strategy.")
@JSON
def partition(
    profile: Path, output: Path, shards: int, strategy: str, load: Any, tokens_per_rank: int | None, extra_rows: str,
    shards_per_node: int | None, real_vocab: int | None, pad_to: int, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Compute a shard map from a PROFILE: equal rows per shard, even load, copies of hot rows where there is room."""
    from skewtool.sharding import make_partition

    check_output(output, profile)
    loaded = skewtool.Profile.load(profile)
    settings: dict[str, Any] = {
        "strategy": strategy, "load": load, "tokens_per_rank": tokens_per_rank, "real_vocab": real_vocab,
        "pad_to": pad_to, "seed": seed,
    }  # fmt: skip
    skewtool.partition(loaded, 1, **settings)  # compiles what the timed call runs, except what places copies
    start = time.perf_counter()
    made = make_partition(loaded, shards, extra_rows=extra_rows, shards_per_node=shards_per_node, **settings)
    seconds = time.perf_counter() - start
    made.shard_map.save(output)
    found = _partition_json(made, strategy, load) | {"seconds": round(seconds, 6)}
    if as_json:
        return print_json(found)
    fewest, most = found["rows_per_shard"]
    extra = f" and {found['extra_rows_per_shard']:,} for copies" if found["extra_rows_per_shard"] else ""
    click.echo(
        f"{strategy}: {made.shard_map.vocab_size:,} ids on {shards} shards, {fewest:,}"
        f"{f' to {most:,}' if most > fewest else ''} rows each{extra}, in {seconds:.3f} s"
    )
    click.echo(
        f"{load} load: busiest / mean {found['imbalance']:.6f}, no map of equal rows below {found['lower_bound']:.6f}, "
        f"gap {found['gap']:.1e}"
    )
    if made.chosen is not None:
        _explain_copies(made)
    click.echo(f"fingerprint {made.shard_map.fingerprint}")
    return None


def _partition_json(made: "Partition", strategy: str, load: str) -> dict[str, Any]:
    from skewtool.sharding import assess

    balance = assess(made.loads, made.shard_map)
    chosen = made.chosen
    return {
        "strategy": strategy,
        "shards": made.shard_map.num_shards,
        "load": load,
        "imbalance": balance.imbalance if chosen is None else chosen.imbalance,
        "lower_bound": balance.lower_bound if chosen is None else 1.0,
        "gap": balance.gap if chosen is None else chosen.imbalance - 1.0,
        "rows_per_shard": row_range(made.shard_map.home_rows),
        "extra_rows_per_shard": made.shard_map.num_slots - made.shard_map.home_slots,
        "copies": None if chosen is None else vars(chosen) | {"tried": [vars(each) for each in made.candidates]},
        "fingerprint": made.shard_map.fingerprint,
    }


def _explain_copies(made: "Partition") -> None:
    """Which copies were chosen and why, beside what else was tried."""
    by_node = any(each.between_nodes_per_token for each in made.candidates)
    click.echo("copies, judged on sampled windows that the map had not learnt from:")
    for each in made.candidates:
        click.echo(
            f"{'>' if each is made.chosen else ' '} {each.every:,} ids on every shard, {each.several:,} on two or more: "
            f"steps p50 {each.step_p50:.4f}, p99 {each.step_p99:.4f}; busiest shard serves {each.requests_per_token:.4f} "
            f"rows per token{f', {each.between_nodes_per_token:.4f} cross nodes' if by_node else ''}"
        )
