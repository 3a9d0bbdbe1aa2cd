"""ShardMap: derived arrays against a dictionary, and every invariant broken once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool import ShardMap, SkewtoolError, partition
from skewtool.errors import MapError

Homes = tuple[list[int], int, int]

# Five ids on three shards, two home slots each; id 4 has copies on shards 0 and 1, id 0 on shard 2.
WITH_COPIES = [[0, 3, 4, -1], [1, -1, 4, -1], [2, 4, 0, -1]]


@st.composite
def homes(draw: st.DrawFn) -> Homes:
    """(shard of each id, number of shards, pad_to)."""
    num_shards = draw(st.integers(1, 9))
    shard_of = draw(st.lists(st.integers(0, num_shards - 1), min_size=1, max_size=40))
    return shard_of, num_shards, draw(st.integers(1, 5))


def test_derived_arrays_of_a_map_with_copies() -> None:
    shard_map = ShardMap(np.array(WITH_COPIES), 2, 5, 4)
    assert (shard_map.num_shards, shard_map.num_slots, shard_map.home_slots) == (3, 4, 2)
    assert shard_map.shard_of.tolist() == [0, 1, 2, 0, 2]
    assert shard_map.slot_of.tolist() == [0, 0, 0, 1, 1]
    assert shard_map.home_rows.tolist() == [2, 1, 2]
    assert shard_map.copy_rows.tolist() == [1, 1, 1]
    assert shard_map.num_copies.tolist() == [1, 0, 0, 0, 2]
    assert shard_map.permutation.tolist() == [0, 2, 4, 1, 5]


@pytest.mark.parametrize(("vocab_size", "num_shards"), [(7, 3), (5, 4), (3, 8), (8, 2), (1, 1)])
def test_a_contiguous_map_has_equal_ranges(vocab_size: int, num_shards: int) -> None:
    shard_map = ShardMap.contiguous(vocab_size, num_shards, real_vocab=1)
    rows = -(-vocab_size // num_shards)
    assert shard_map.shard_of.tolist() == [token // rows for token in range(vocab_size)]
    assert (shard_map.num_shards, shard_map.home_slots, shard_map.real_vocab) == (num_shards, rows, 1)
    assert shard_map.permutation.tolist() == list(range(vocab_size))
    assert shard_map == partition([*[1], *[0] * (vocab_size - 1)], num_shards, "contiguous", real_vocab=1)


def test_what_is_no_contiguous_map_is_refused() -> None:
    with pytest.raises(MapError, match="vocab_size must be at least 1, got 0"):
        ShardMap.contiguous(0, 2)
    with pytest.raises(MapError, match="the number of shards must be at least 1, got 0"):
        ShardMap.contiguous(2, 0)
    with pytest.raises(MapError, match="vocab_size must be a whole number"):
        ShardMap.contiguous(2.5, 2)  # type: ignore[arg-type]


def test_without_copies() -> None:
    shard_map = ShardMap(np.array(WITH_COPIES), 2, 5, 4)
    homes = shard_map.without_copies()
    assert homes.token_at.tolist() == [row[:2] for row in WITH_COPIES]
    assert (homes.home_slots, homes.vocab_size, homes.real_vocab, homes.has_copies) == (2, 5, 4, False)
    assert homes.without_copies() is homes
    assert homes.with_copies(shard_map.token_at[:, 2:]) == shard_map


def test_documented_types() -> None:
    shard_map = ShardMap(np.array(WITH_COPIES, np.int64), 2, 5, 5)
    assert shard_map.token_at.dtype == np.int32
    assert shard_map.shard_of.dtype == np.int32
    assert shard_map.slot_of.dtype == np.int32
    assert shard_map.permutation.dtype == np.int64
    assert all(isinstance(value, int) for value in (shard_map.num_shards, shard_map.num_slots))


@given(homes())
def test_derived_arrays_equal_a_dictionary(given_homes: Homes) -> None:
    shard_of, num_shards, pad_to = given_homes
    shard_map = ShardMap.from_homes(np.array(shard_of), num_shards, pad_to=pad_to)
    place: dict[int, tuple[int, int]] = {}
    for shard in range(num_shards):
        for slot, token in enumerate(i for i, s in enumerate(shard_of) if s == shard):
            place[token] = (shard, slot)
    assert [(int(s), int(t)) for s, t in zip(shard_map.shard_of, shard_map.slot_of, strict=True)] == [
        place[token] for token in range(len(shard_of))
    ]
    fullest = max(shard_of.count(shard) for shard in range(num_shards))
    assert shard_map.home_slots % pad_to == 0
    assert fullest <= shard_map.home_slots < fullest + pad_to
    assert shard_map.num_slots == shard_map.home_slots
    assert shard_map.home_rows.tolist() == [shard_of.count(shard) for shard in range(num_shards)]
    assert not shard_map.num_copies.any()
    assert shard_map.real_vocab == shard_map.vocab_size == len(shard_of)


@given(homes())
def test_a_contiguous_split_of_the_permuted_table_is_the_map(given_homes: Homes) -> None:
    shard_of, num_shards, pad_to = given_homes
    shard_map = ShardMap.from_homes(np.array(shard_of), num_shards, pad_to=pad_to)
    permuted = np.full(num_shards * shard_map.home_slots, -1)
    permuted[shard_map.permutation] = np.arange(len(shard_of))
    assert (permuted.reshape(num_shards, -1) == shard_map.token_at).all()


@pytest.mark.parametrize(
    ("token_at", "home_slots", "vocab_size", "real_vocab", "message"),
    [
        pytest.param([0, 1], 1, 2, 2, r"matrix of integers", id="not a matrix"),
        pytest.param([[[0]]], 1, 1, 1, r"matrix of integers", id="three dimensions"),
        pytest.param([[0.0, 1.0]], 2, 2, 2, r"matrix of integers.*float64", id="floats"),
        pytest.param([[True]], 1, 2, 2, r"matrix of integers.*bool", id="booleans"),
        pytest.param([["0"]], 1, 1, 1, r"matrix of integers", id="strings"),
        pytest.param(np.empty((0, 2), np.int32), 2, 2, 2, r"at least one shard", id="no shard"),
        pytest.param([[0, 1]], 3, 2, 2, r"home_slots must be 0 to 2.*got 3", id="more homes than slots"),
        pytest.param([[0, 1]], -1, 2, 2, r"home_slots must be 0 to 2.*got -1", id="negative home slots"),
        pytest.param([[-1]], 1, 0, 0, r"vocab_size must be 1", id="no ids"),
        pytest.param([[0]], 1, 2**31, 1, r"vocab_size must be 1 to 2147483647.*got 2147483648", id="too many ids"),
        pytest.param([[0, 1]], 2, 2, 0, r"real_vocab must be 1.*got 0", id="no real ids"),
        pytest.param([[0, 1]], 2, 2, 3, r"real_vocab must be 1 to vocab_size \(2\), got 3", id="more real ids than ids"),
        pytest.param([[0, 1], [2, 7]], 2, 4, 4, r"shard 1, slot 1 holds id 7", id="id above the vocabulary"),
        pytest.param([[0, 4], [2, 3]], 2, 4, 4, r"shard 0, slot 1 holds id 4", id="id equal to vocab_size"),
        pytest.param([[0, -2], [1, -1]], 2, 2, 2, r"shard 0, slot 1 holds id -2", id="below -1"),
        pytest.param([[0, 2**31 + 5]], 2, 2, 2, r"shard 0, slot 1 holds id 2147483653", id="beyond 32 bits"),
        pytest.param([[0, 2**32 - 1]], 2, 1, 1, r"shard 0, slot 1 holds id 4294967295", id="-1 that has wrapped"),
        pytest.param([[0, 1], [-1, 2]], 2, 3, 3, r"shard 1, slot 0 is empty before id 2", id="empty home slot first"),
        pytest.param(
            [[0, -1, -1], [1, -1, 0]], 1, 2, 2, r"shard 1, slot 1 is empty before id 0 in slot 2", id="empty copy first"
        ),
        pytest.param([[0, 1], [3, -1]], 2, 4, 4, r"id 2 has no home", id="no home"),
        pytest.param([[0, 1], [2, 0]], 1, 3, 3, r"id 1 has no home", id="a copy is no home"),
        pytest.param([[0, 1], [2, 1]], 2, 3, 3, r"id 1 has 2 homes: shard 0, slot 1 and shard 1, slot 1", id="two homes"),
        pytest.param([[0, 0]], 2, 1, 1, r"id 0 has 2 homes: shard 0, slot 0 and shard 0, slot 1", id="twice at home"),
        pytest.param([[0, 1, 0], [2, 3, -1]], 2, 4, 4, r"shard 0 holds id 0 twice, in slots 0 and 2", id="own copy"),
        pytest.param([[0, 1, 1], [2, 0, 0]], 1, 3, 3, r"id 1 has no home", id="homes before copies"),
        pytest.param([[0, 2, 2], [1, -1, -1], [2, 0, -1]], 1, 3, 3, r"shard 0 holds id 2 twice", id="two copies"),
    ],
)
def test_each_broken_invariant_is_named(
    token_at: Any, home_slots: int, vocab_size: int, real_vocab: int, message: str
) -> None:
    with pytest.raises(MapError, match=message) as caught:
        ShardMap(np.asarray(token_at), home_slots, vocab_size, real_vocab)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, SkewtoolError)
    assert isinstance(caught.value, ValueError)


@given(homes(), st.data())
def test_any_one_wrong_slot_is_found(given_homes: Homes, data: st.DataObject) -> None:
    shard_of, num_shards, pad_to = given_homes
    good = ShardMap.from_homes(np.array(shard_of), num_shards, pad_to=pad_to)
    shard = data.draw(st.integers(0, num_shards - 1))
    slot = data.draw(st.integers(0, good.num_slots - 1))
    value = data.draw(st.integers(-3, len(shard_of) + 2).filter(lambda v: v != good.token_at[shard, slot]))
    bad = good.token_at.copy()
    bad[shard, slot] = value
    with pytest.raises(MapError, match=r"(id -?\d+|slot \d+)"):
        ShardMap(bad, good.home_slots, good.vocab_size, good.real_vocab)


def test_no_change_from_outside() -> None:
    given_array = np.array(WITH_COPIES, np.int32)
    shard_map = ShardMap(given_array, 2, 5, 5)
    before = shard_map.fingerprint
    given_array[0, 0] = 3
    assert shard_map.token_at[0, 0] == 0
    assert ShardMap(np.array(WITH_COPIES), 2, 5, 5).fingerprint == before
    arrays: list[npt.NDArray[Any]] = [
        shard_map.token_at, shard_map.shard_of, shard_map.slot_of, shard_map.permutation,
        shard_map.num_copies, shard_map.home_rows, shard_map.copy_rows,
    ]  # fmt: skip
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(AttributeError):
        shard_map.home_slots = 1  # type: ignore[misc]


def test_given_array_stays_writable() -> None:
    given_array = np.array([[0, 1]], np.int32)
    ShardMap(given_array, 2, 2, 2)
    given_array[0, 0] = 1
    shard_of = np.array([0, 1])
    ShardMap.from_homes(shard_of, 2)
    shard_of[0] = 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "int64", ">i4", ">i8"])
def test_equality_does_not_depend_on_the_type_given(dtype: str) -> None:
    wide = ShardMap(np.array([[0, 1], [2, 3]], np.int64), 2, 4, 4)
    other = ShardMap(np.array([[0, 1], [2, 3]], dtype), 2, 4, 4)
    assert other == wide
    assert hash(other) == hash(wide)
    assert other.fingerprint == wide.fingerprint


def test_strided_and_fortran_arrays() -> None:
    plain = np.array([[0, 1, 2], [3, 4, 5]])
    for array in (np.asfortranarray(plain), np.repeat(plain, 2, axis=1)[:, ::2]):
        assert ShardMap(array, 3, 6, 6) == ShardMap(plain, 3, 6, 6)


def test_maps_differ_in_whatever_they_mean() -> None:
    base = ShardMap(np.array([[0, 1, -1], [2, 3, -1]]), 2, 4, 4)
    others = [
        ShardMap(np.array([[0, 1, -1], [2, 3, -1]]), 3, 4, 4),
        ShardMap(np.array([[0, 1, -1], [2, 3, -1]]), 2, 4, 3),
        ShardMap(np.array([[1, 0, -1], [2, 3, -1]]), 2, 4, 4),
        ShardMap(np.array([[2, 3, -1], [0, 1, -1]]), 2, 4, 4),
        ShardMap(np.array([[0, 1], [2, 3]]), 2, 4, 4),
        ShardMap(np.array([[0, 1, 2], [2, 3, -1]]), 2, 4, 4),
    ]
    assert len({base, *others}) == 7
    assert len({each.fingerprint for each in (base, *others)}) == 7
    assert base != "a map"
    assert (base == base.fingerprint) is False


def test_repr_says_what_it_is() -> None:
    shown = repr(ShardMap(np.array(WITH_COPIES), 2, 5, 5))
    assert "5 ids on 3 shards" in shown
    assert "2 home" in shown
    assert "2 copy" in shown
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("shard_of", "num_shards", "pad_to", "message"),
    [
        ([0, 1, 2], 2, 1, r"id 2 is put on shard 2; shards are 0 to 1"),
        ([0, -1], 2, 1, r"id 1 is put on shard -1"),
        ([0.0, 1.0], 2, 1, r"shard_of must be integers"),
        ([[0], [1]], 2, 1, r"shard_of must be integers"),
        ([0], 0, 1, r"at least 1, got 0"),
        ([0], -4, 1, r"at least 1, got -4"),
        ([0], 1, 0, r"at least 1, got 0"),
        ([0], 1, -2, r"at least 1, got -2"),
        (np.empty(0, np.int64), 2, 1, r"vocab_size must be 1"),
    ],
)
def test_from_homes_names_what_is_wrong(shard_of: Any, num_shards: int, pad_to: int, message: str) -> None:
    with pytest.raises(MapError, match=message):
        ShardMap.from_homes(np.asarray(shard_of), num_shards, pad_to=pad_to)


def test_from_homes_keeps_real_vocab() -> None:
    assert ShardMap.from_homes(np.array([0, 1, 0]), 2, real_vocab=2).real_vocab == 2
    with pytest.raises(MapError, match="real_vocab"):
        ShardMap.from_homes(np.array([0, 1, 0]), 2, real_vocab=4)


@pytest.mark.parametrize("sizes", [(2, 4, 2.5), (2, 4, 4.0), (2, 4.0, 4), (2.0, 4, 4), ("2", 4, 4), (2, None, 4)])
def test_sizes_that_are_no_whole_numbers_are_refused(sizes: Any) -> None:
    with pytest.raises((MapError, TypeError)):
        ShardMap(np.array([[0, 1], [2, 3]]), *sizes)
