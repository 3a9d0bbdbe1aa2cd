"""Sharded vocabulary tables on torch.distributed. Needs torch (`pip install skewtool[torch]`)."""

from skewtool.parallel.route import Route
from skewtool.parallel.routed_embedding import RoutedEmbedding

__all__ = ["Route", "RoutedEmbedding"]
