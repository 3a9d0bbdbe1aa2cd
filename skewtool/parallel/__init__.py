"""Sharded vocabulary tables on torch.distributed. Needs torch (`pip install skewtool[torch]`)."""

from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.embedding import (
    HiddenParallelEmbedding,
    HiddenShardedLayerNorm,
    HiddenShardedRMSNorm,
    RoutedEmbedding,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from skewtool.parallel.head import (
    HiddenParallelLMHead,
    VocabParallelLMHead,
    entropy,
    linear_cross_entropy,
    log_prob,
    vocab_parallel_cross_entropy,
)
from skewtool.parallel.routing import FixedCapacityRoute, HiddenRoute, Route
from skewtool.parallel.tokens import gather_tokens

__all__ = [
    "Collective",
    "FixedCapacityRoute",
    "HiddenParallelEmbedding",
    "HiddenParallelLMHead",
    "HiddenRoute",
    "HiddenShardedLayerNorm",
    "HiddenShardedRMSNorm",
    "Route",
    "RoutedEmbedding",
    "RowParallelLinear",
    "VocabParallelEmbedding",
    "VocabParallelLMHead",
    "entropy",
    "gather_tokens",
    "linear_cross_entropy",
    "log_prob",
    "record_collectives",
    "vocab_parallel_cross_entropy",
]
