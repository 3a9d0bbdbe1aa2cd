"""The chooser on tensors is the planner's, to the last tie."""

import numpy as np
import pytest
import torch

from skewtool.parallel.routing.slots import _choose, choose, slots_of
from skewtool.sharding import SlotTable, choose_slots, partition


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shards_per_node", [None, 2])
def test_the_chooser_is_the_planners(seed: int, shards_per_node: int | None) -> None:
    loads = 5000 // np.arange(1, 401)
    shard_map = partition(loads, 6, extra_rows=12)
    ids = np.flatnonzero(np.random.default_rng(seed).random(400) < 0.6)
    for source in range(6):
        expected = choose_slots(ids, source, SlotTable.of(shard_map, shards_per_node))
        slots = slots_of(shard_map, source, torch.device("cpu"), shards_per_node)
        padded = torch.from_numpy(np.append(ids, [0, 0, 0]))
        for rule in (choose, _choose):  # on this CPU; as a GPU runs it
            chosen = rule(padded, slots, torch.arange(ids.size + 3) < ids.size)
            assert chosen[: ids.size].tolist() == expected.tolist()


def test_nothing_is_chosen_for_no_ids() -> None:
    slots = slots_of(partition([5, 4, 3, 2], 2, extra_rows=1), 0, torch.device("cpu"))
    nothing = torch.empty(0, dtype=torch.int64)
    for rule in (choose, _choose):
        assert rule(nothing, slots, nothing.bool()).shape == (0,)


def test_slots_of_this_rank_are_those_of_the_map() -> None:
    shard_map = partition(1000 // np.arange(1, 30), 3, extra_rows=4)
    for rank in range(3):
        own_slot = slots_of(shard_map, rank, torch.device("cpu")).own_slot.tolist()
        held = shard_map.token_at[rank].tolist()
        assert own_slot == [held.index(token) if token in held else -1 for token in range(29)]
