"""What a rank asks, and of whom, before anything is sent."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from skewtool.parallel.routing.requests import Requests, distinct, flat_ids
from skewtool.parallel.routing.slots import slots_of
from skewtool.sharding import partition

IDS = st.lists(st.integers(0, 19), max_size=40)

SHARD_MAP = partition(1000 // np.arange(1, 21), 3, extra_rows=4)


@given(IDS, st.booleans())
def test_distinct_ids_are_those_of_unique(ids: list[int], fixed_shapes: bool) -> None:
    tokens = torch.tensor(ids, dtype=torch.int64)
    expected, inverse = torch.unique(tokens, return_inverse=True)
    unique, counts, place = distinct(tokens, fixed_shapes)
    assert unique.shape == counts.shape == (tokens if fixed_shapes else expected).shape
    assert unique[counts].tolist() == expected.tolist()
    assert counts[: len(expected)].all()
    assert not unique[len(expected) :].any()
    assert place.tolist() == inverse.tolist()


@given(IDS, st.booleans(), st.booleans(), st.integers(0, 2))
def test_every_token_finds_its_id_at_a_shard_that_has_it(
    ids: list[int], ask_once: bool, fixed_shapes: bool, rank: int
) -> None:
    tokens = torch.tensor(ids, dtype=torch.int64)
    requests = Requests.of(tokens, slots_of(SHARD_MAP, rank, torch.device("cpu")), ask_once, fixed_shapes)
    in_use = int(requests.number.sum())
    assert requests.ids[requests.place].tolist() == ids
    assert in_use == (len(set(ids)) if ask_once else len(ids))
    assert requests.shard[:in_use].tolist() == sorted(requests.shard[:in_use].tolist())
    assert (requests.shard[in_use:] == SHARD_MAP.num_shards).all()
    assert requests.number.tolist() == [requests.shard.tolist().count(shard) for shard in range(-1, 3)]
    for token, shard in zip(requests.ids[:in_use].tolist(), requests.shard[:in_use].tolist(), strict=True):
        if shard < 0:
            assert SHARD_MAP.num_copies[token] == 2, "read in place what is not on every shard"
        else:
            assert token in SHARD_MAP.token_at[shard]


def test_ids_of_any_stride_become_flat() -> None:
    ids = torch.arange(12, dtype=torch.int32).view(3, 4).t()
    assert flat_ids(ids).tolist() == ids.flatten().tolist()
    assert flat_ids(ids).dtype == torch.int64
