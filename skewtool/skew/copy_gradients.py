"""What gradients of copies cost, and from which presence on a copy pays for them.

A copy is one more row of an id, on a shard that did not have it. It spares that shard's rank every lookup of the id on
another shard, and costs two rows at each optimizer update: its gradient goes to the home, and the sum comes back.

With presence p, the share of windows that hold the id, M lookups per update and rows of r bytes, over all ranks:

    saved per update   p M (r + 8 + r)    the row forward, the id that asks for it, its gradient backward
    cost per update    2 r

One copy on one of P shards helps a given source with probability 1 / P, and there are P sources: p M lookups per update.
An id on every shard is no other case for 32-bit gradients: P - 1 copies, and an all-reduce sends 2 (P-1)/P r on each of P
ranks; 16-bit ones are all-reduced in float32, which costs twice as much. So

    a copy pays from   p >= 2 r / (M (2 r + 8)),   just below 1 / M

which hidden size and dtype hardly move. The number of tokens per rank decides: longer windows hold more ids. Without
optimizer updates a copy costs memory only, and every copy of an id that occurs pays.
"""

import numpy as np
import numpy.typing as npt

from skewtool.profiling import WindowStatistics
from skewtool.sharding import ShardMap
from skewtool.skew.table_sizes import BYTES_PER_ID, TableSizes, at_least_one
from skewtool.skew.traffic import PerRank, Traffic, equal, exchange

__all__ = ["copy_buffers", "copy_pays_from", "copy_traffic", "exchanged_rows", "ids_on_every_shard", "ids_whose_copies_pay"]


def copy_pays_from(bytes_per_row: int, lookups_per_update: int | None) -> float:
    """The presence (0 to 1) from which one more copy of an id saves as many bytes as its gradient costs; see the module.

    `lookups_per_update`: micro-steps per optimizer update, None for inference, where the answer is 0: any id that occurs.
    Errors: MapError for numbers below 1.
    """
    bytes_per_row = at_least_one("bytes_per_row", bytes_per_row)
    if lookups_per_update is None:
        return 0.0
    lookups_per_update = at_least_one("lookups_per_update", lookups_per_update)
    return 2 * bytes_per_row / (lookups_per_update * (2 * bytes_per_row + BYTES_PER_ID))


def ids_whose_copies_pay(windows: WindowStatistics, pays_from: float) -> int:
    """How many ids occur and are in at least the share `pays_from` of the windows."""
    share = windows.presence / max(windows.num_windows, 1)
    return int(np.count_nonzero((windows.presence > 0) & (share >= pays_from)))


def _on_every_shard(shard_map: ShardMap) -> npt.NDArray[np.bool_]:
    return np.asarray((shard_map.num_copies > 0) & (shard_map.num_copies == shard_map.num_shards - 1))


def ids_on_every_shard(shard_map: ShardMap) -> int:
    """Ids with a slot on each of several shards: their gradients are all-reduced."""
    return int(np.count_nonzero(_on_every_shard(shard_map)))


def _between_slots(shard_map: ShardMap) -> npt.NDArray[np.int64]:
    """int64 [P, P]: gradients that the copies on each shard send to homes on each, ids on every shard left out."""
    copies = shard_map.token_at[:, shard_map.home_slots :]
    held = (copies >= 0) & ~_on_every_shard(shard_map)[copies]
    between = np.zeros((shard_map.num_shards, shard_map.num_shards), np.int64)
    np.add.at(between, (held.nonzero()[0], shard_map.shard_of[copies[held]]), 1)
    return between


def exchanged_rows(shard_map: ShardMap) -> npt.NDArray[np.int64]:
    """Gradient rows that each rank sends, and receives, in an update for ids on some shards but not all: int64 [P].

    One for each copy it holds (to the home), and one for each copy of an id whose home it is (the sum).
    """
    between = _between_slots(shard_map)
    return np.asarray(between.sum(axis=1) + between.sum(axis=0))


def copy_traffic(sizes: TableSizes, shard_map: ShardMap) -> list[Traffic]:
    """The collectives of `synchronize_copies` in an optimizer update, in the order of the code: sums of ids on every shard
    in at least float32; of others, gradients to their home and sums back, in their own type."""
    everywhere, between = ids_on_every_shard(shard_map), _between_slots(shard_map)
    summed = everywhere * sizes.hidden * sizes.bytes_per_sum
    calls = [equal("update", "all_reduce", "gradients", summed, sizes.num_shards)] if everywhere else []
    if between.any():
        for way in (between, between.T):
            calls += exchange("update", "gradients", way, sizes.bytes_per_row, sizes.hidden)
    return calls


def copy_buffers(sizes: TableSizes, shard_map: ShardMap) -> PerRank:
    """Bytes that `synchronize_copies` allocates at its peak beside the gradient, of each rank, int64 [P].

    Counted are rows, as by `embedding_buffers`: of ids on every shard; or copies' gradients, of which this rank sends some
    and gets others, and the sums of the ids whose home it is.
    """
    row, between = sizes.bytes_per_row, _between_slots(shard_map)
    wide = sizes.bytes_per_sum * sizes.hidden
    narrowed = row if sizes.is_narrow else 0  # what is widened, or narrowed, is there twice for a moment
    sent, arrived = between.sum(axis=1), between.sum(axis=0)
    owned = np.bincount(shard_map.shard_of[_copied_on_some(shard_map)], minlength=shard_map.num_shards)
    widened = between.max(axis=0) * wide if sizes.is_narrow else 0
    moments = (
        np.full_like(sent, ids_on_every_shard(shard_map) * (wide + narrowed)),
        (sent + arrived) * row,
        arrived * row + owned * wide + np.maximum(owned * narrowed, widened),
        (owned + arrived + sent) * row,
    )
    return np.asarray(np.maximum.reduce(moments), np.int64)


def _copied_on_some(shard_map: ShardMap) -> npt.NDArray[np.bool_]:
    return np.asarray((shard_map.num_copies > 0) & ~_on_every_shard(shard_map))
