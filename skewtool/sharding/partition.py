"""`partition`: from loads, or a profile, to a ShardMap."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError
from skewtool.profiling import Profile
from skewtool.sharding.budget import budget_rows
from skewtool.sharding.bursts import Bursts
from skewtool.sharding.copies import CopyCandidate, choose_copies, spread_rows
from skewtool.sharding.even_split import copies_by_load
from skewtool.sharding.loads import OBJECTIVES, Objective, check_padding, checked_loads, loads_of
from skewtool.sharding.shard_map import ShardMap
from skewtool.sharding.step_objective import homes_by_steps
from skewtool.sharding.strategies import KEEPS_ID_ORDER, STRATEGIES

__all__ = ["Partition", "make_partition", "partition", "real_vocab_of"]


@dataclass(frozen=True, eq=False)
class Partition:
    """A map and how it came about: the loads int64 [V] it was made for and, with copies chosen by replay, the split of
    the budget that was taken and all that were tried."""

    shard_map: ShardMap
    loads: npt.NDArray[np.int64]
    chosen: CopyCandidate | None = None
    candidates: tuple[CopyCandidate, ...] = ()


def partition(
    counts_or_profile: Profile | npt.ArrayLike,
    num_shards: int,
    strategy: str = "balanced",
    *,
    load: Objective = "unique",
    tokens_per_rank: int | None = None,
    extra_rows: int | str = 0,
    shards_per_node: int | None = None,
    real_vocab: int | None = None,
    pad_to: int = 1,
    seed: int = 0,
) -> ShardMap:
    """Maps ids to shards: equal rows (within one) and, with "balanced", load as even as can be.

    From a Profile the load of an id is chosen by `load` and `tokens_per_rank` (default: the profile's longest window);
    for unique load "balanced" also keeps ids apart that burst together in the profile's sampled windows, and "steps" tries
    how much that should weigh against the average for the least p99 of a step.
    A vector of V whole numbers, one per id, is taken as the loads themselves. `extra_rows`: room for copies on each
    shard, as rows or as a percentage of its home rows ("10%"); "balanced" only. Ids from `real_vocab` on are padding:
    they have rows, spread evenly, but must have no load (default: what the profile's tokenizer says, else none).
    `shards_per_node`: copies first save traffic between nodes of so many shards (shards in order, node by node).
    `pad_to` rounds the home slots per shard up to a multiple. `seed` is for "random".

    Errors: MapError for loads that are no whole numbers of at least 0, for padding ids with load, and for parameters out
    of range; ProfileError when the profile lacks windows of `tokens_per_rank` tokens.
    """
    return make_partition(
        counts_or_profile, num_shards, strategy, load=load, tokens_per_rank=tokens_per_rank, extra_rows=extra_rows,
        shards_per_node=shards_per_node, real_vocab=real_vocab, pad_to=pad_to, seed=seed,
    ).shard_map  # fmt: skip


def make_partition(
    counts_or_profile: Profile | npt.ArrayLike,
    num_shards: int,
    strategy: str = "balanced",
    *,
    load: Objective = "unique",
    tokens_per_rank: int | None = None,
    extra_rows: int | str = 0,
    shards_per_node: int | None = None,
    real_vocab: int | None = None,
    pad_to: int = 1,
    seed: int = 0,
) -> Partition:
    """As `partition`, with the loads and the choice of copies beside the map."""
    if load not in OBJECTIVES:
        raise MapError(f"unknown load {load!r}; known are {', '.join(OBJECTIVES)}")
    windows = None
    if isinstance(counts_or_profile, Profile):
        loads = loads_of(counts_or_profile, "raw" if load == "raw" else "unique", tokens_per_rank)
        real_vocab = real_vocab_of(counts_or_profile) if real_vocab is None else real_vocab
        if load != "raw":
            windows = counts_or_profile.window(tokens_per_rank or counts_or_profile.tokens_per_rank)
    else:
        loads = checked_loads(counts_or_profile)
        real_vocab = loads.size if real_vocab is None else real_vocab
    _check(num_shards, strategy, shards_per_node)
    check_padding(loads, real_vocab)
    # A shard has at most one slot of each id, so further room could never be used.
    room = min(budget_rows(extra_rows, -(-loads.size // num_shards), "extra rows"), loads.size)
    if room and num_shards > 1:
        if strategy != "balanced":
            raise MapError(f"only the balanced strategy places copies; {strategy} takes no extra rows")
        if windows is None or len(windows.sample) < num_shards:
            return _with_copies_by_load(loads, real_vocab, num_shards, room, pad_to)
        shard_map, chosen, tried = choose_copies(windows, real_vocab, num_shards, room, shards_per_node or num_shards)
        return Partition(shard_map.padded(pad_to), loads, chosen, tuple(tried))
    if strategy in KEEPS_ID_ORDER:
        shard_of = STRATEGIES[strategy](loads, num_shards, seed)
    else:
        shard_of = np.full(loads.size, -1, np.int32)
        if load == "steps" and strategy == "balanced" and windows is not None:
            shard_of[:real_vocab] = homes_by_steps(windows, real_vocab, num_shards)
        else:
            bursts = None if windows is None else Bursts.of(windows, num_shards)
            shard_of[:real_vocab] = STRATEGIES[strategy](loads[:real_vocab], num_shards, seed, bursts)
        spread_rows(shard_of, np.arange(real_vocab, loads.size), num_shards)
    return Partition(ShardMap.from_homes(shard_of, num_shards, real_vocab=real_vocab, pad_to=pad_to), loads)


def _with_copies_by_load(
    loads: npt.NDArray[np.int64], real_vocab: int, num_shards: int, room: int, pad_to: int
) -> Partition:
    shard_of, copies = copies_by_load(loads[:real_vocab], num_shards, room)
    shard_of = np.concatenate([shard_of, np.full(loads.size - real_vocab, -1, np.int32)])
    spread_rows(shard_of, np.arange(real_vocab, loads.size), num_shards)
    homes = ShardMap.from_homes(shard_of, num_shards, real_vocab=real_vocab)
    return Partition(homes.with_copies(copies).padded(pad_to), loads)


def _check(num_shards: int, strategy: str, shards_per_node: int | None) -> None:
    if strategy not in STRATEGIES:
        raise MapError(f"unknown strategy {strategy!r}; known are {', '.join(STRATEGIES)}")
    if num_shards < 1:
        raise MapError(f"the number of shards must be at least 1, got {num_shards}")
    if shards_per_node is not None and (shards_per_node < 1 or num_shards % shards_per_node):
        raise MapError(f"{num_shards} shards are no whole number of nodes of {shards_per_node} shards")


def real_vocab_of(profile: Profile) -> int:
    """Ids that are tokens: as many as the profile's tokenizer has, all where it is not known."""
    return profile.vocab_size if profile.tokenizer is None else min(profile.tokenizer.num_ids, profile.vocab_size)
