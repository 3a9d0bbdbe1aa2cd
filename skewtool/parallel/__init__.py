"""Sharded vocabulary tables on torch.distributed. Needs torch (`pip install skewtool[torch]`)."""

from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.decoding import vocab_parallel_argmax, vocab_parallel_sample, vocab_parallel_topk
from skewtool.parallel.embedding import RoutedEmbedding
from skewtool.parallel.routing import FixedCapacityRoute, Route

__all__ = [
    "Collective",
    "FixedCapacityRoute",
    "Route",
    "RoutedEmbedding",
    "record_collectives",
    "vocab_parallel_argmax",
    "vocab_parallel_sample",
    "vocab_parallel_topk",
]
