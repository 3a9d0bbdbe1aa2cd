"""Sharded vocabulary tables on torch.distributed. Needs torch (`pip install skewtool[torch]`)."""

from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.embedding import RoutedEmbedding
from skewtool.parallel.routing import FixedCapacityRoute, Route

__all__ = ["Collective", "FixedCapacityRoute", "Route", "RoutedEmbedding", "record_collectives"]
