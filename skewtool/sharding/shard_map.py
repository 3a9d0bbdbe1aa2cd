"""`ShardMap`: where every row of a vocabulary table lives.

State, from which all else is derived:
  token_at    int32 [P, S]   the id held in each slot of each shard, -1 where the slot is empty
  home_slots  R              slots [0, R) are homes, slots [R, S) are copies
  vocab_size, real_vocab     ids below vocab_size have a row; ids from real_vocab on are padding, no classes

Invariants, checked when a map is made or loaded: every id in [0, vocab_size) has exactly one home; an id has at most one
slot on a shard; empty slots follow full ones, among homes and among copies.

The local weight of a shard is one [S, H] array whose first R rows are the rows of the LM head, so a tied head is
`weight[:R]` without a gather. A contiguous split of the permuted vocabulary (new id = shard * R + slot) is this map,
which is how frameworks that know only contiguous shards can use it.
"""

import hashlib
import operator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError

__all__ = ["ShardMap", "contiguous_homes"]

_MOST_IDS = 2**31 - 1


def contiguous_homes(vocab_size: int, num_shards: int) -> npt.NDArray[np.int32]:
    """The shard of each id, int32 [V]: equal ranges of ids, ceil(V / P) each, the last shorter or empty."""
    return (np.arange(vocab_size) // -(-vocab_size // num_shards)).astype(np.int32)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class ShardMap:
    """An immutable map of ids to slots. See the module for the arrays; errors: MapError naming id, shard and slot."""

    token_at: npt.NDArray[np.int32]
    home_slots: int
    vocab_size: int
    real_vocab: int

    def __post_init__(self) -> None:
        for name in ("home_slots", "vocab_size", "real_vocab"):
            object.__setattr__(self, name, _whole_number(name, getattr(self, name)))
        token_at = np.asarray(self.token_at)
        if token_at.ndim != 2 or token_at.dtype.kind not in "iu":
            raise MapError(f"token_at must be a matrix of integers [shards, slots], got {token_at.dtype} {token_at.shape}")
        _check_sizes(token_at, self.home_slots, self.vocab_size, self.real_vocab)
        _check_ids(token_at, self.vocab_size)
        object.__setattr__(self, "token_at", _read_only(token_at.astype(np.int32)))
        _check_empty_slots(self.token_at, self.home_slots)
        _check_homes(self.token_at[:, : self.home_slots], self.vocab_size)
        _check_one_slot_per_shard(self.token_at)

    @classmethod
    def from_homes(
        cls, shard_of: npt.NDArray[Any], num_shards: int, *, real_vocab: int | None = None, pad_to: int = 1
    ) -> "ShardMap":
        """The map without copies in which id i lives on shard_of[i]: integers [V], in [0, num_shards).

        Within a shard ids ascend. Shards have as many home slots as the fullest one needs, rounded up to a multiple of
        `pad_to`; slots left over are empty. Errors: MapError for shards out of range.
        """
        shard_of = np.asarray(shard_of)
        if shard_of.ndim != 1 or shard_of.dtype.kind not in "iu":
            raise MapError(f"shard_of must be integers [vocab_size], got {shard_of.dtype} {shard_of.shape}")
        if num_shards < 1:
            raise MapError(f"the number of shards must be at least 1, got {num_shards}")
        bad = np.flatnonzero((shard_of < 0) | (shard_of >= num_shards))
        if bad.size:
            raise MapError(f"id {bad[0]} is put on shard {shard_of[bad[0]]}; shards are 0 to {num_shards - 1}")
        rows = np.bincount(shard_of, minlength=num_shards)
        home_slots = int(rows.max(initial=0))
        token_at = np.full((num_shards, home_slots), -1, np.int32)
        by_shard = np.argsort(shard_of, kind="stable")
        slot = np.arange(shard_of.size) - np.repeat(np.cumsum(rows) - rows, rows)
        token_at[shard_of[by_shard], slot] = by_shard
        made = cls(token_at, home_slots, shard_of.size, shard_of.size if real_vocab is None else real_vocab)
        return made.padded(pad_to)

    @classmethod
    def contiguous(cls, vocab_size: int, num_shards: int, *, real_vocab: int | None = None) -> "ShardMap":
        """The map that frameworks use: equal ranges of ids, ceil(V / P) a shard, the last shorter or empty, no copies.

        Errors: MapError for numbers below 1.
        """
        for name, value in (("vocab_size", vocab_size), ("the number of shards", num_shards)):
            if _whole_number(name, value) < 1:
                raise MapError(f"{name} must be at least 1, got {value}")
        return cls.from_homes(contiguous_homes(vocab_size, num_shards), num_shards, real_vocab=real_vocab)

    def with_copies(self, copies: npt.NDArray[Any]) -> "ShardMap":
        """This map with copy slots as given, ids int [P, E] with -1 behind the last of each shard."""
        homes = self.token_at[:, : self.home_slots]
        return ShardMap(np.concatenate([homes, copies], axis=1), self.home_slots, self.vocab_size, self.real_vocab)

    def without_copies(self) -> "ShardMap":
        """This map with its home slots alone: the rows of an LM head that is not tied."""
        if self.num_slots == self.home_slots:
            return self
        return ShardMap(self.token_at[:, : self.home_slots], self.home_slots, self.vocab_size, self.real_vocab)

    def padded(self, multiple: int) -> "ShardMap":
        """This map with empty home slots added up to a multiple per shard. Errors: MapError for a multiple below 1."""
        multiple = _whole_number("pad_to", multiple)
        if multiple < 1:
            raise MapError(f"pad_to must be at least 1, got {multiple}")
        more = -self.home_slots % multiple
        if not more:
            return self
        homes, copies = np.split(self.token_at, [self.home_slots], axis=1)
        empty = np.full((self.num_shards, more), -1, np.int32)
        token_at = np.concatenate([homes, empty, copies], axis=1)
        return ShardMap(token_at, self.home_slots + more, self.vocab_size, self.real_vocab)

    @property
    def num_shards(self) -> int:
        return int(self.token_at.shape[0])

    @property
    def num_slots(self) -> int:
        """Slots per shard, homes and copies: the rows of a local weight."""
        return int(self.token_at.shape[1])

    @cached_property
    def has_copies(self) -> bool:
        """Whether any id has more than its home."""
        return bool((self.token_at[:, self.home_slots :] >= 0).any())

    @cached_property
    def home_rows(self) -> npt.NDArray[np.int64]:
        """Ids that have their home on each shard: int64 [P]."""
        return _read_only(np.count_nonzero(self.token_at[:, : self.home_slots] >= 0, axis=1))

    @cached_property
    def copy_rows(self) -> npt.NDArray[np.int64]:
        """Copies held by each shard: int64 [P]."""
        return _read_only(np.count_nonzero(self.token_at[:, self.home_slots :] >= 0, axis=1))

    @cached_property
    def _homes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        homes = self.token_at[:, : self.home_slots]
        shards, slots = np.nonzero(homes >= 0)
        shard_of, slot_of = np.empty(self.vocab_size, np.int32), np.empty(self.vocab_size, np.int32)
        ids = homes[shards, slots]
        shard_of[ids], slot_of[ids] = shards, slots
        return _read_only(shard_of), _read_only(slot_of)

    @property
    def shard_of(self) -> npt.NDArray[np.int32]:
        """The shard of each id's home: int32 [V]."""
        return self._homes[0]

    @property
    def slot_of(self) -> npt.NDArray[np.int32]:
        """The slot of each id's home on its shard: int32 [V]."""
        return self._homes[1]

    @cached_property
    def num_copies(self) -> npt.NDArray[np.int64]:
        """Copies of each id beside its home: int64 [V]."""
        copies = self.token_at[:, self.home_slots :]
        return _read_only(np.bincount(copies[copies >= 0], minlength=self.vocab_size))

    @cached_property
    def permutation(self) -> npt.NDArray[np.int64]:
        """The new id of each id, shard * home_slots + slot: int64 [V], values below num_shards * home_slots.

        A contiguous split of a table in the new order, home_slots rows per shard, is this map. New ids are consecutive
        unless shards have empty home slots.
        """
        return _read_only(self.shard_of.astype(np.int64) * self.home_slots + self.slot_of)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of what the map means: equal maps have equal fingerprints, whatever file they came from."""
        digest = hashlib.sha256(
            f"shard-map {self.token_at.shape} {self.home_slots} {self.vocab_size} {self.real_vocab}\n".encode()
        )
        digest.update(self.token_at.astype("<i4").tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardMap) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return (
            f"ShardMap({self.vocab_size} ids on {self.num_shards} shards, {self.home_slots} home and "
            f"{self.num_slots - self.home_slots} copy slots each, {self.fingerprint[:12]})"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the map as a safetensors file; equal maps give equal bytes."""
        from skewtool.sharding.shard_map_file import save_shard_map

        save_shard_map(self, Path(path))

    @staticmethod
    def load(path: str | PathLike[str]) -> "ShardMap":
        """Reads and checks a map. Errors: FileFormatError for a damaged or foreign file, MapError for a bad map."""
        from skewtool.sharding.shard_map_file import load_shard_map

        return load_shard_map(Path(path))


def _whole_number(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise MapError(f"{name} must be a whole number, got {value!r}") from None


def _check_sizes(token_at: npt.NDArray[Any], home_slots: int, vocab_size: int, real_vocab: int) -> None:
    num_shards, num_slots = token_at.shape
    if num_shards < 1:
        raise MapError("a map needs at least one shard, token_at has none")
    if not 0 <= home_slots <= num_slots:
        raise MapError(f"home_slots must be 0 to {num_slots}, the number of slots, got {home_slots}")
    if not 1 <= vocab_size <= _MOST_IDS:
        raise MapError(f"vocab_size must be 1 to {_MOST_IDS}, got {vocab_size}")
    if not 1 <= real_vocab <= vocab_size:
        raise MapError(f"real_vocab must be 1 to vocab_size ({vocab_size}), got {real_vocab}")


def _place(where: npt.NDArray[np.bool_]) -> tuple[int, int]:
    shard, slot = np.unravel_index(int(np.argmax(where)), where.shape)
    return int(shard), int(slot)


def _check_ids(token_at: npt.NDArray[Any], vocab_size: int) -> None:
    outside = (token_at < -1) | (token_at >= vocab_size)
    if outside.any():
        shard, slot = _place(outside)
        raise MapError(
            f"shard {shard}, slot {slot} holds id {token_at[shard, slot]}; ids are 0 to {vocab_size - 1}, -1 is empty"
        )


def _check_empty_slots(token_at: npt.NDArray[np.int32], home_slots: int) -> None:
    for what, first, part in (("home", 0, token_at[:, :home_slots]), ("copy", home_slots, token_at[:, home_slots:])):
        after_empty = (part[:, 1:] >= 0) & (part[:, :-1] < 0)
        if after_empty.any():
            shard, slot = _place(after_empty)
            raise MapError(
                f"shard {shard}, slot {first + slot} is empty before id {part[shard, slot + 1]} in slot "
                f"{first + slot + 1}; empty {what} slots must come last"
            )


def _check_homes(homes: npt.NDArray[np.int32], vocab_size: int) -> None:
    number = np.bincount(homes[homes >= 0], minlength=vocab_size)
    if (number == 1).all():
        return
    token = int(np.argmax(number != 1))
    if not number[token]:
        raise MapError(f"id {token} has no home; every id below {vocab_size} needs one")
    shards, slots = np.nonzero(homes == token)
    raise MapError(
        f"id {token} has {number[token]} homes: shard {shards[0]}, slot {slots[0]} and shard {shards[1]}, "
        f"slot {slots[1]}; further slots must be copies"
    )


def _check_one_slot_per_shard(token_at: npt.NDArray[np.int32]) -> None:
    ordered = np.sort(token_at, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        shard, place = _place(twice)
        token = int(ordered[shard, place])
        slots = np.flatnonzero(token_at[shard] == token)
        raise MapError(f"shard {shard} holds id {token} twice, in slots {slots[0]} and {slots[1]}")
