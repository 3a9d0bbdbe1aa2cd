"""`rebalance`: a new map near an old one, for new loads, another number of shards, or a vocabulary that has grown.

Two kinds of moves: forced ones, without which rows would not be equal (see `equal_rows`), and chosen ones, exchanges that
even out load under a budget of moved rows (see `exchanges`). Only homes move. Where ids have copies these stay, and so do
the homes of these ids; the others are evened out around them, with the requests for ids with several slots split as the
chooser does over many steps (see `split_requests`).

Where a map is as even as exchanges can make it, as one that `partition` has just made for the same loads, nothing moves.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError
from skewtool.profiling import Profile
from skewtool.sharding.bounds import Balance, lower_bound
from skewtool.sharding.budget import budget_rows
from skewtool.sharding.equal_rows import equal_rows, load_per_shard
from skewtool.sharding.exchanges import exchange
from skewtool.sharding.loads import Load, check_padding, checked_loads, exact_sum, loads_of
from skewtool.sharding.moves import kept_copies, lay_out, moves_between
from skewtool.sharding.shard_map import ShardMap
from skewtool.sharding.split_requests import split_load

__all__ = ["Rebalanced", "rebalance"]

_BITS = 62
_EVEN_ENOUGH = 10**6
_EVEN_ENOUGH_WITH_COPIES = 10**4  # real steps are no more even than this: requests are whole, and windows differ


@dataclass(frozen=True, eq=False)
class Rebalanced:
    """A new map and what leads to it.

    moves   int64 [n, 5]  id, from_shard, from_slot, to_shard, to_slot by ascending id; new ids come from (-1, -1)
    curve   (moved rows, busiest / mean) from the forced moves alone to the end: ever more rows, ever more even
    forced, chosen        moved rows of each kind: ids of the old map that change shard
    before, after         balance of the old map and of the new one under the new loads
    """

    shard_map: ShardMap
    moves: npt.NDArray[np.int64]
    curve: tuple[tuple[int, float], ...]
    forced: int
    chosen: int
    before: Balance
    after: Balance

    @property
    def moved_rows(self) -> int:
        """Ids of the old map that change shard: what the budget limits."""
        return self.forced + self.chosen

    @property
    def new_rows(self) -> int:
        """Ids that the old map did not have."""
        return int(np.count_nonzero(self.moves[:, 1] < 0))

    @property
    def slot_changes(self) -> int:
        """Rows that change their slot within their shard."""
        return int(np.count_nonzero(self.moves[:, 1] == self.moves[:, 3]))


def rebalance(
    shard_map: ShardMap,
    profile_or_loads: Profile | npt.ArrayLike,
    *,
    num_shards: int | None = None,
    max_moved: int | str = "1%",
    load: Load = "unique",
    tokens_per_rank: int | None = None,
    real_vocab: int | None = None,
) -> Rebalanced:
    """Re-balances a map for other loads, shards or ids; equal rows (within one), at most `max_moved` rows moved.

    From a Profile the load of an id is chosen by `load` and `tokens_per_rank`; a vector of V whole numbers is taken as the
    loads themselves. Ids of the map beyond it have no load; ids beyond the map are new and get a home without counting as
    moved. `num_shards` default: as the map. Of fewer shards the last go away, since rows on a shard that is renumbered
    would have moved, too. `max_moved`: rows, or a percentage of the map's ids ("1%"). `real_vocab` default: the map's, or
    what the profile's tokenizer says where that is more; all ids where there are new ones and no tokenizer is known.

    Errors: MapError when `max_moved` is below what equal rows need (it says how much), for other shards of a map with
    copies, for padding ids with load, and for loads or parameters out of range; ProfileError when the profile lacks windows
    of `tokens_per_rank` tokens.
    """
    num_shards = shard_map.num_shards if num_shards is None else num_shards
    loads = _loads(shard_map, profile_or_loads, load, tokens_per_rank)
    real_vocab = _real_vocab(shard_map, profile_or_loads, loads.size) if real_vocab is None else real_vocab
    _check(shard_map, loads, num_shards, real_vocab)
    most_moved = min(budget_rows(max_moved, shard_map.vocab_size, "max_moved"), shard_map.vocab_size)
    rows = _Rows.of(shard_map, loads)
    before = rows.balance(rows.old, shard_map.num_shards)[1]
    placed = equal_rows(rows.single, rows.old, real_vocab, rows.movable, rows.fixed(rows.old, num_shards))
    forced = int(np.count_nonzero((rows.old >= 0) & (rows.old != placed)))
    if forced > most_moved:
        raise MapError(
            f"equal rows on {num_shards} shards need {forced} of {shard_map.vocab_size} rows moved, max_moved allows "
            f"{most_moved}; allow at least {forced}"
        )
    fixed, start = rows.balance(placed, num_shards)
    target = int(start.bound) + int(start.bound) // (_EVEN_ENOUGH_WITH_COPIES if shard_map.has_copies else _EVEN_ENOUGH)
    found = exchange(rows.single, rows.old, placed, real_vocab, rows.movable, fixed, target, most_moved)
    made = lay_out(shard_map, found.shard_of, num_shards, real_vocab)
    states = [(moved, replace(start, busiest=busiest)) for moved, busiest in found.curve]
    moved_rows, after = states[-1]
    return Rebalanced(
        made, moves_between(shard_map, made), tuple((moved, state.imbalance) for moved, state in states),
        forced, moved_rows - forced, before, after,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a table, V those of the map and new ones.

    loads   int64 [V]  of all ids, scaled so that their sum fits 62 bits
    single  int64 [V]  of ids without copies, 0 for others
    movable bool [V]   ids without copies
    old     int32 [V]  home in the old map, -1 for new ids
    """

    shard_map: ShardMap
    loads: npt.NDArray[np.int64]
    single: npt.NDArray[np.int64]
    movable: npt.NDArray[np.bool_]
    old: npt.NDArray[np.int32]

    @classmethod
    def of(cls, shard_map: ShardMap, loads: npt.NDArray[np.int64]) -> "_Rows":
        loads = _scaled(loads, shard_map.has_copies)
        more = loads.size - shard_map.vocab_size
        movable = np.pad(shard_map.num_copies == 0, (0, more), constant_values=True)
        old = np.pad(shard_map.shard_of, (0, more), constant_values=-1)
        return cls(shard_map, loads, np.where(movable, loads, 0), movable, old)

    def fixed(self, shard_of: npt.NDArray[np.int32], num_shards: int) -> npt.NDArray[np.int64]:
        """Load of ids with copies on each shard, int64 [P], beside that of the others."""
        if not self.shard_map.has_copies:
            return np.zeros(num_shards, np.int64)
        return split_load(self.shard_map, self.loads, load_per_shard(self.single, shard_of, num_shards))

    def balance(self, shard_of: npt.NDArray[np.int32], num_shards: int) -> tuple[npt.NDArray[np.int64], Balance]:
        """The fixed load, and the balance with homes on shard_of [V] (-1: no home). With copies the bound is the mean."""
        fixed = self.fixed(shard_of, num_shards)
        load = fixed + load_per_shard(self.single, shard_of, num_shards)
        total = int(load.sum())
        copies = self.shard_map.has_copies
        bound = -(-total // num_shards) if copies else lower_bound(self.loads[shard_of >= 0], num_shards)
        return fixed, Balance(int(load.max()), total, num_shards, bound)


def _loads(
    shard_map: ShardMap, profile_or_loads: Profile | npt.ArrayLike, load: Load, tokens_per_rank: int | None
) -> npt.NDArray[np.int64]:
    """Loads int64 of the ids of the map and of those beyond it."""
    if isinstance(profile_or_loads, Profile):
        given = loads_of(profile_or_loads, load, tokens_per_rank)
    else:
        given = checked_loads(profile_or_loads)
    return np.pad(given, (0, max(0, shard_map.vocab_size - given.size)))


def _real_vocab(shard_map: ShardMap, profile_or_loads: Profile | npt.ArrayLike, vocab_size: int) -> int:
    if isinstance(profile_or_loads, Profile) and profile_or_loads.tokenizer is not None:
        return max(shard_map.real_vocab, min(profile_or_loads.tokenizer.num_ids, vocab_size))
    return shard_map.real_vocab if vocab_size == shard_map.vocab_size else vocab_size


def _check(shard_map: ShardMap, loads: npt.NDArray[np.int64], num_shards: int, real_vocab: int) -> None:
    if num_shards < 1:
        raise MapError(f"the number of shards must be at least 1, got {num_shards}")
    kept_copies(shard_map, num_shards)  # raises where they cannot be kept
    check_padding(loads, real_vocab)


def _scaled(loads: npt.NDArray[np.int64], finely: bool) -> npt.NDArray[np.int64]:
    """Loads whose sum fits 62 bits; `finely` also makes small ones large, so that parts of them are whole numbers."""
    shift = exact_sum(loads).bit_length() - _BITS
    if shift > 0:
        return loads >> shift
    # 2 bits less than fit, for what rounding adds.
    return loads << max(0, -shift - 2) if finely else loads
