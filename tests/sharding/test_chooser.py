"""The chooser against its rule written out plainly, and what the rule is for."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.sharding import ShardMap, SlotTable, choose_slots
from skewtool.sharding.chooser import EVERY_SHARD, GROUPS, ONE_SLOT, PASSES


def _random_map(seed: int, vocab_size: int, num_shards: int, most_copies: int) -> ShardMap:
    """Equal rows and a random number of copies of random ids."""
    generator = np.random.default_rng(seed)
    homes = generator.permutation(vocab_size) % num_shards
    held: list[list[int]] = [[] for _ in range(num_shards)]
    for token in range(vocab_size):
        others = [shard for shard in range(num_shards) if shard != homes[token]]
        number = int(generator.integers(0, min(most_copies, len(others)) + 1))
        for shard in generator.permutation(others)[:number]:
            held[shard].append(token)
    width = max(map(len, held))
    copies = np.array([row + [-1] * (width - len(row)) for row in held], np.int32).reshape(num_shards, width)
    return ShardMap.from_homes(homes, num_shards).with_copies(copies)


def _plain(ids: Sequence[int], source: int, shard_map: ShardMap) -> list[int]:
    """The rule of the module's docstring, id by id."""
    num_shards = shard_map.num_shards
    slots = {token: [s for s in range(num_shards) if token in shard_map.token_at[s]] for token in ids}
    chosen = {token: holders[0] if len(holders) == 1 else -1 for token, holders in slots.items()}
    several = [token for token in ids if 1 < len(slots[token]) < num_shards]
    for token in ids:
        if len(slots[token]) == num_shards and num_shards > 1:
            chosen[token] = source
    requests = [0] * num_shards
    for holders in slots.values():
        if len(holders) == 1:
            requests[holders[0]] += 1
    size = -(-len(several) // GROUPS)
    for _ in range(PASSES):
        for first in range(0, len(several), max(size, 1)):
            before = list(requests)
            for token in several[first : first + size]:
                own = chosen[token]

                def cost(s: int, own: int = own, before: list[int] = before) -> tuple[int, int]:
                    return before[s] - (s == own), (s - source) % num_shards

                best = min(slots[token], key=cost)
                if own >= 0:
                    requests[own] -= 1
                requests[best] += 1
                chosen[token] = best
    return [chosen[token] for token in ids]


@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(0, 6))
def test_the_rule_is_the_one_written_down(seed: int, num_shards: int, most_copies: int) -> None:
    shard_map = _random_map(seed, 120, num_shards, most_copies)
    generator = np.random.default_rng(seed)
    ids = np.flatnonzero(generator.random(120) < 0.7)
    source = int(generator.integers(num_shards))
    table = SlotTable.of(shard_map)
    assert choose_slots(ids, source, table).tolist() == _plain(ids.tolist(), source, shard_map)


@given(st.integers(0, 1000), st.integers(2, 6))
def test_only_shards_that_hold_the_id_are_asked(seed: int, num_shards: int) -> None:
    shard_map = _random_map(seed, 60, num_shards, num_shards)
    table = SlotTable.of(shard_map)
    for source in range(num_shards):
        for token, shard in enumerate(choose_slots(np.arange(60), source, table)):
            assert token in shard_map.token_at[shard]


def _requests(shard_map: ShardMap, ids: npt.NDArray[np.int64], source: int) -> npt.NDArray[np.int64]:
    table = SlotTable.of(shard_map)
    counted = ids[table.row_of[ids] != EVERY_SHARD]
    return np.bincount(choose_slots(counted, source, table), minlength=shard_map.num_shards)


def test_a_choice_of_two_makes_the_requests_of_a_source_even() -> None:
    ids = np.arange(800)
    homes = np.arange(800) * 7 % 8
    two = np.array([[t for t in range(400) if (homes[t] + 1 + t % 7) % 8 == s] for s in range(8)], dtype=object)
    width = max(map(len, two))
    copies = np.array([list(row) + [-1] * (width - len(row)) for row in two], np.int32)
    shard_map = ShardMap.from_homes(homes, 8).with_copies(copies)
    burst = ids[(homes != 3) | (ids < 500)]  # shard 3 is asked for less than the others
    for source in range(8):
        assert np.ptp(_requests(shard_map, burst, source)) <= 2
    assert np.ptp(np.bincount(homes[burst], minlength=8)) > 20


def test_remainders_of_different_sources_fall_on_different_shards() -> None:
    """One id on shards 0 and 1: each source takes its own slot, the others the next one after them."""
    homes = ShardMap.from_homes(np.array([0, 1, 2]), 3)
    shard_map = homes.with_copies(np.array([[-1], [0], [-1]], np.int32))
    table = SlotTable.of(shard_map)
    assert [int(choose_slots(np.array([0]), source, table)[0]) for source in range(3)] == [0, 1, 0]


def test_the_table_tells_kinds_of_ids_apart() -> None:
    homes = ShardMap.from_homes(np.array([0, 1, 2, 0]), 3)
    shard_map = homes.with_copies(np.array([[1, -1], [0, 3], [0, -1]], np.int32))
    table = SlotTable.of(shard_map)
    assert table.row_of.tolist() == [EVERY_SHARD, 0, ONE_SLOT, 1]
    assert table.shards.tolist() == [[0, 1], [0, 1]]


def test_a_single_shard_answers_everything_as_requests() -> None:
    table = SlotTable.of(ShardMap.from_homes(np.zeros(5, int), 1))
    assert (table.row_of == ONE_SLOT).all()
    assert choose_slots(np.arange(5), 0, table).tolist() == [0] * 5


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_any_integer_type_and_no_ids_at_all(dtype: type) -> None:
    table = SlotTable.of(_random_map(1, 30, 3, 2))
    assert choose_slots(np.array([], dtype), 0, table).size == 0
    assert (choose_slots(np.arange(30, dtype=dtype), 1, table) == choose_slots(np.arange(30), 1, table)).all()
