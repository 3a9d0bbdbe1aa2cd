"""The room of a fixed-capacity route, beside a count by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from skewtool.errors import MapError, ProfileError
from skewtool.profiling import Profile
from skewtool.sharding import ShardMap, partition
from skewtool.skew import route_capacity

Profiles = Callable[..., Profile]


def test_it_is_the_most_that_a_window_asks_of_a_shard(profile_of: Profiles) -> None:
    """Windows of four tokens hold 4, 3 and 1 distinct ids of shard 0 under a contiguous map of eight."""
    judged = profile_of([0, 1, 2, 3, 0, 1, 2, 7, 5, 5, 5, 0], 8, windows=(4,))
    assert route_capacity(judged, ShardMap.contiguous(8, 2), share=1, headroom=1) == 4
    assert route_capacity(judged, ShardMap.contiguous(8, 2), share=0.5, headroom=1) == 3
    assert route_capacity(judged, ShardMap.contiguous(8, 2), share=1, headroom=1.3) == 6  # rounded up


def test_an_even_map_needs_less_room(profile_of: Profiles) -> None:
    generator = np.random.default_rng(0)
    ids = (400 * generator.random(20_000) ** 3).astype(int)
    judged = profile_of(ids, 400, windows=(500,))
    rooms = [route_capacity(judged, partition(judged, 8, name)) for name in ("contiguous", "balanced")]
    copies = route_capacity(judged, partition(judged, 8, extra_rows=10))
    assert rooms[0] > 1.3 * rooms[1] > rooms[1] > copies


def test_ids_read_in_place_need_no_room(profile_of: Profiles) -> None:
    judged = profile_of([0, 1, 2, 3], 4, windows=(4,))
    everywhere = ShardMap(np.array([[0, 1, 2, 3], [2, 3, 0, 1]]), 2, 4, 4)
    assert route_capacity(judged, everywhere) == 1


def test_what_cannot_be_answered_is_refused(profile_of: Profiles) -> None:
    judged = profile_of([0, 1, 2, 7], 8, windows=(4,))
    with pytest.raises(MapError, match="rows for 4 only"):
        route_capacity(judged, ShardMap.contiguous(4, 2))
    with pytest.raises(MapError, match="share"):
        route_capacity(judged, ShardMap.contiguous(8, 2), share=0)
    with pytest.raises(ProfileError, match="16"):
        route_capacity(judged, ShardMap.contiguous(8, 2), 16)
    with pytest.raises(MapError, match="no sampled windows"):
        route_capacity(profile_of([1], 8, windows=(4,)), ShardMap.contiguous(8, 2))
