"""The move list: which rows change place between two maps, exact, so that it can be replayed without the new map.

moves  int64 [n, 5], ascending by id: id, from_shard, from_slot, to_shard, to_slot. A new id comes from (-1, -1). A row that
keeps shard and slot is not in the list; one that keeps its shard only is, but never crosses a wire. All moves happen at
once: read every row from where it was, then write it where it goes. Copies do not move.
"""

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError
from skewtool.sharding.shard_map import ShardMap

__all__ = ["MOVE_COLUMNS", "apply_moves", "kept_copies", "lay_out", "moves_between"]

MOVE_COLUMNS = ("id", "from_shard", "from_slot", "to_shard", "to_slot")
"""The columns of a move list, and the header of its file."""

Moves = npt.NDArray[np.int64]


def lay_out(shard_map: ShardMap, shard_of: npt.NDArray[np.int32], num_shards: int, real_vocab: int) -> ShardMap:
    """The map with homes on shard_of int32 [V], in which as many rows as can be keep their slot in `shard_map`.

    Rows behind the new end of their shard come forward into its free slots, then arriving rows fill them, by ascending
    id. Home slots per shard stay as they are where the number of shards does and the rows fit.
    """
    rows = np.bincount(shard_of, minlength=num_shards)
    home_slots = int(rows.max())
    if num_shards == shard_map.num_shards:
        home_slots = max(home_slots, shard_map.home_slots)
    homes = np.full((num_shards, home_slots), -1, np.int32)
    by_shard = np.argsort(shard_of, kind="stable")
    for shard, ids in enumerate(np.split(by_shard, np.cumsum(rows)[:-1])):
        known = ids[ids < shard_map.vocab_size]
        stay = known[shard_map.shard_of[known] == shard]
        slots = shard_map.slot_of[stay]
        kept = slots < ids.size
        homes[shard, slots[kept]] = stay[kept]
        behind = stay[~kept]
        arriving = np.setdiff1d(ids, stay, assume_unique=True)
        free = np.flatnonzero(homes[shard, : ids.size] < 0)
        homes[shard, free] = np.concatenate([behind[np.argsort(slots[~kept])], arriving])
    token_at = np.concatenate([homes, kept_copies(shard_map, num_shards)], axis=1)
    return ShardMap(token_at, home_slots, shard_of.size, real_vocab)


def kept_copies(shard_map: ShardMap, num_shards: int) -> npt.NDArray[np.int32]:
    """The copy slots int32 [P, E] on `num_shards` shards; without copies their room stays whatever the number.

    Errors: MapError for copies on another number of shards.
    """
    if num_shards == shard_map.num_shards:
        return shard_map.token_at[:, shard_map.home_slots :]
    if shard_map.has_copies:
        raise MapError(
            f"the map has copies for {shard_map.num_shards} shards, which cannot be kept on {num_shards}; make a new map "
            f"with skewtool partition --shards {num_shards} --extra-rows"
        )
    return np.full((num_shards, shard_map.num_slots - shard_map.home_slots), -1, np.int32)


def moves_between(old: ShardMap, new: ShardMap) -> Moves:
    """The moves int64 [n, 5] from one map to another that has at least its ids."""
    before = np.full((new.vocab_size, 2), -1, np.int64)
    before[: old.vocab_size] = np.stack([old.shard_of, old.slot_of], axis=1)
    after = np.stack([new.shard_of, new.slot_of], axis=1).astype(np.int64)
    ids = np.flatnonzero((before != after).any(axis=1))
    return np.concatenate([ids[:, None], before[ids], after[ids]], axis=1)


def apply_moves(
    shard_map: ShardMap, moves: npt.NDArray[np.integer], num_shards: int, home_slots: int, real_vocab: int | None = None
) -> ShardMap:
    """The map that `moves`, integers [n, 5], make of `shard_map`, with `num_shards` shards of `home_slots` home slots.

    `real_vocab` default: as it was, or all ids where the list has new ones.
    Errors: MapError for a row that is not where a move takes it from, for a place outside the new map or taken by another
    row, for ids without a home afterwards, and for a map with copies on another number of shards.
    """
    moves = np.asarray(moves)
    if moves.ndim != 2 or moves.shape[1] != len(MOVE_COLUMNS) or moves.dtype.kind not in "iu":
        raise MapError(f"moves must be integers [n, 5] ({', '.join(MOVE_COLUMNS)}), got {moves.dtype} {moves.shape}")
    return _replayed(shard_map, moves.astype(np.int64), num_shards, home_slots, real_vocab)


def _replayed(shard_map: ShardMap, moves: Moves, num_shards: int, home_slots: int, real_vocab: int | None) -> ShardMap:
    copies = kept_copies(shard_map, num_shards)
    new = moves[:, 1] == -1
    before = shard_map.token_at[:, : shard_map.home_slots].copy()
    _clear(before, moves[~new])
    homes = np.full((num_shards, home_slots), -1, np.int32)
    stays = before[:num_shards, :home_slots]
    homes[: stays.shape[0], : stays.shape[1]] = stays
    _fill(homes, moves)
    vocab_size = shard_map.vocab_size + int(new.sum())
    if real_vocab is None:
        real_vocab = vocab_size if new.any() else shard_map.real_vocab
    return ShardMap(np.concatenate([homes, copies], axis=1), home_slots, vocab_size, real_vocab)


def _clear(homes: npt.NDArray[np.int32], moves: Moves) -> None:
    """Empties the slots that rows come from."""
    inside = _inside(moves[:, 1:3], homes.shape)
    found = np.full(len(moves), -1, np.int64)
    found[inside] = homes[moves[inside, 1], moves[inside, 2]]
    wrong = np.flatnonzero(found != moves[:, 0])
    if wrong.size:
        token, shard, slot = moves[wrong[0], :3]
        raise MapError(f"a move takes id {token} from shard {shard}, slot {slot}, where the map has {found[wrong[0]]}")
    homes[moves[:, 1], moves[:, 2]] = -1


def _fill(homes: npt.NDArray[np.int32], moves: Moves) -> None:
    """Puts the rows where they go."""
    inside = _inside(moves[:, 3:5], homes.shape)
    taken = ~inside
    taken[inside] = homes[moves[inside, 3], moves[inside, 4]] >= 0
    if taken.any():
        token, _, _, shard, slot = moves[int(np.argmax(taken))]
        raise MapError(f"a move brings id {token} to shard {shard}, slot {slot}, which is no free home slot")
    homes[moves[:, 3], moves[:, 4]] = moves[:, 0]


def _inside(places: Moves, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    return np.asarray(((places >= 0) & (places < shape)).all(axis=1))
