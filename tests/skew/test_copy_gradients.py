"""What gradients of copies cost, and when a copy pays: by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from skewtool import Profile, ShardMap
from skewtool.errors import MapError
from skewtool.skew.copy_gradients import copy_pays_from, exchanged_rows, ids_on_every_shard, ids_whose_copies_pay


def test_gradient_rows_of_copies_by_hand() -> None:
    # Homes: shard 0 has ids 0, 3; shard 1 has 1, 4; shard 2 has 2, 5. Copies: 1 and 2 on 0, 0 and 2 on 1, 1 on 2:
    # 1 and 2 are everywhere; 0 is on two shards, so its copy on 1 and its home on 0 send one row each.
    copied = ShardMap.from_homes(np.arange(6) % 3, 3).with_copies(np.array([[1, 2], [0, 2], [1, -1]]))
    assert exchanged_rows(copied).tolist() == [1, 1, 0]
    assert ids_on_every_shard(copied) == 2
    alone = ShardMap.from_homes(np.zeros(3, np.int64), 1)
    assert (exchanged_rows(alone).tolist(), ids_on_every_shard(alone)) == ([0], 0)


def test_a_copy_pays_when_it_saves_what_its_gradient_costs(profile_of: Callable[..., Profile]) -> None:
    # Rows of 16 bytes: p M (16 + 8 + 16) = 2 x 16.
    assert copy_pays_from(16, 1) == pytest.approx(32 / 40)
    assert copy_pays_from(16, 4) == pytest.approx(8 / 40)
    assert copy_pays_from(8192, 8) * 8 * (2 * 8192 + 8) == pytest.approx(2 * 8192)
    assert copy_pays_from(16, None) == 0.0
    windows = replace(profile_of([0, 1, 2, 3], 4, windows=(4,)).window(4), num_windows=10, presence=np.array([10, 8, 7, 0]))
    assert ids_whose_copies_pay(windows, copy_pays_from(16, 1)) == 2
    assert ids_whose_copies_pay(windows, copy_pays_from(16, None)) == 3
    for arguments in ((0, 1), (16, 0), (16, -1)):
        with pytest.raises(MapError, match="must be at least 1, got"):
            copy_pays_from(*arguments)
