"""Move lists: replay, and lists that do not fit the map."""

import numpy as np
import pytest

from skewtool import ShardMap
from skewtool.errors import MapError
from skewtool.sharding import MOVE_COLUMNS, apply_moves
from skewtool.sharding.moves import lay_out, moves_between

OLD = ShardMap(np.array([[0, 2, 4], [1, 3, -1]]), 3, 5, 5)


def test_columns_are_those_of_the_list() -> None:
    new = ShardMap(np.array([[0, 3, 4], [1, 2, 5]]), 3, 6, 6)
    moves = moves_between(OLD, new)
    assert [dict(zip(MOVE_COLUMNS, move, strict=True)) for move in moves.tolist()] == [
        {"id": 2, "from_shard": 0, "from_slot": 1, "to_shard": 1, "to_slot": 1},
        {"id": 3, "from_shard": 1, "from_slot": 1, "to_shard": 0, "to_slot": 1},
        {"id": 5, "from_shard": -1, "from_slot": -1, "to_shard": 1, "to_slot": 2},
    ]
    assert apply_moves(OLD, moves, 2, 3) == new
    assert apply_moves(OLD, moves[::-1], 2, 3) == new
    assert apply_moves(OLD, np.empty((0, 5), np.int64), 2, 3) == OLD
    assert apply_moves(OLD, moves, 2, 3, real_vocab=5).real_vocab == 5


def test_rows_behind_the_end_come_forward_before_others_arrive() -> None:
    # Shard 0 loses ids 0 and 2, so id 4 in slot 2 comes forward into slot 0; then id 1 arrives.
    new = lay_out(OLD, np.array([1, 0, 1, 1, 0], np.int32), 2, 5)
    assert new.token_at.tolist() == [[4, 1, -1], [0, 3, 2]]
    assert apply_moves(OLD, moves_between(OLD, new), 2, 3) == new


def test_room_for_copies_stays() -> None:
    roomy = ShardMap(np.array([[0, 2, -1], [1, 3, -1]]), 2, 4, 4)
    new = lay_out(roomy, np.array([0, 1, 2, 1], np.int32), 3, 4)
    assert (new.num_slots, new.home_slots) == (3, 2)


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([[2, 0, 0, 1, 2]], "takes id 2 from shard 0, slot 0, where the map has 0"),
        ([[2, 7, 0, 1, 2]], "takes id 2 from shard 7, slot 0, where the map has -1"),
        ([[2, 0, -2, 1, 2]], "takes id 2 from shard 0, slot -2"),
        ([[2, 0, 1, 1, 1]], "brings id 2 to shard 1, slot 1, which is no free home slot"),
        ([[2, 0, 1, 2, 0]], "brings id 2 to shard 2, slot 0, which is no free"),
        ([[2, 0, 1, 1, 3]], "brings id 2 to shard 1, slot 3, which is no free"),
        ([[2, 0, 1, 1, 2]], "slot 1 is empty before id 4"),
        ([[4, 0, 2, 1, 2], [5, -1, -1, 1, 2]], "no home"),
        ([[2, 0, 1]], r"integers \[n, 5\]"),
        ([[0.5] * 5], "integers"),
    ],
)
def test_lists_that_do_not_fit(moves: list[list[float]], message: str) -> None:
    with pytest.raises(MapError, match=message):
        apply_moves(OLD, np.array(moves), 2, 3)


def test_rows_left_outside() -> None:
    with pytest.raises(MapError, match="id 1 has no home"):
        apply_moves(OLD, np.empty((0, 5), np.int64), 1, 3)
    with pytest.raises(MapError, match="id 4 has no home"):
        apply_moves(OLD, np.empty((0, 5), np.int64), 2, 2)
