"""Shard maps: the ShardMap and its file, strategies that compute one, and the bounds that say how good it is."""

from skewtool.sharding.bounds import Balance, assess, lower_bound, shard_loads
from skewtool.sharding.chooser import SlotTable, choose_slots
from skewtool.sharding.copies import CopyCandidate
from skewtool.sharding.loads import LOADS, Load, loads_of
from skewtool.sharding.moves import MOVE_COLUMNS, apply_moves
from skewtool.sharding.partition import Partition, make_partition, partition, real_vocab_of
from skewtool.sharding.rebalance import Rebalanced, rebalance
from skewtool.sharding.shard_map import ShardMap
from skewtool.sharding.strategies import STRATEGIES

__all__ = [
    "LOADS",
    "MOVE_COLUMNS",
    "STRATEGIES",
    "Balance",
    "CopyCandidate",
    "Load",
    "Partition",
    "Rebalanced",
    "ShardMap",
    "SlotTable",
    "apply_moves",
    "assess",
    "choose_slots",
    "loads_of",
    "lower_bound",
    "make_partition",
    "partition",
    "real_vocab_of",
    "rebalance",
    "shard_loads",
]
