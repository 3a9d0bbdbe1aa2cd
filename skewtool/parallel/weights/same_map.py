"""`check_same_map`: all ranks work under the same map, or all of them hear of it."""

import torch

from skewtool.errors import MapError
from skewtool.parallel.collectives import all_gather
from skewtool.parallel.counter_hash import as_int64
from skewtool.parallel.groups import Group, device_of
from skewtool.sharding import ShardMap

__all__ = ["check_same_map"]

_MOST_NAMED = 8


def check_same_map(shard_map: ShardMap, group: Group = None) -> None:
    """Compares the maps of all ranks by fingerprint; the group may have another size than the map.

    Call it once at start: ranks with different maps exchange rows of other ids than they think. Collectives: one
    all_gather of 32 bytes per rank. Errors, on every rank alike: MapError naming fingerprints and ranks.
    """
    fingerprint = shard_map.fingerprint
    words = [as_int64(int(fingerprint[first : first + 16], 16)) for first in range(0, 64, 16)]
    everyone = all_gather(torch.tensor(words, device=device_of(group)), group, "fingerprints").tolist()
    ranks: dict[str, list[int]] = {}
    for rank, others in enumerate(everyone):
        ranks.setdefault("".join(f"{word % 2**64:016x}" for word in others), []).append(rank)
    if len(ranks) > 1:
        maps = "; ".join(f"{each[:12]} on {_named(holders)}" for each, holders in ranks.items())
        raise MapError(f"ranks have different maps: {maps}; give all ranks the same map file")


def _named(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:_MOST_NAMED]))
    more = f" and {len(ranks) - _MOST_NAMED} more" * (len(ranks) > _MOST_NAMED)
    return f"rank{'s' * (len(ranks) > 1)} {names}{more}"
