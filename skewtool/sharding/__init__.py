"""Shard maps: the ShardMap and its file, strategies that compute one, and the bounds that say how good it is."""

from skewtool.sharding.bounds import Balance, assess, lower_bound
from skewtool.sharding.chooser import SlotTable, choose_slots
from skewtool.sharding.loads import LOADS, Load, loads_of
from skewtool.sharding.partition import partition, real_vocab_of
from skewtool.sharding.shard_map import ShardMap
from skewtool.sharding.strategies import STRATEGIES

__all__ = [
    "LOADS",
    "STRATEGIES",
    "Balance",
    "Load",
    "ShardMap",
    "SlotTable",
    "assess",
    "choose_slots",
    "loads_of",
    "lower_bound",
    "partition",
    "real_vocab_of",
]
