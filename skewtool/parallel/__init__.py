"""Sharded vocabulary tables on torch.distributed. Needs torch (`pip install skewtool[torch]`)."""

from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.decoding import argmax, vocab_parallel_sample, vocab_parallel_topk
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
from skewtool.parallel.weights import (
    check_same_map,
    clip_grad_norm_,
    from_checkpoint,
    grad_norm,
    initial_rows,
    initialize_columns,
    initialize_rows,
    reshard,
    reshard_state,
    shard_weight,
    synchronize_copies,
    to_checkpoint,
    unshard_weight,
)

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
    "argmax",
    "check_same_map",
    "clip_grad_norm_",
    "entropy",
    "from_checkpoint",
    "gather_tokens",
    "grad_norm",
    "initial_rows",
    "initialize_columns",
    "initialize_rows",
    "linear_cross_entropy",
    "log_prob",
    "record_collectives",
    "reshard",
    "reshard_state",
    "shard_weight",
    "synchronize_copies",
    "to_checkpoint",
    "unshard_weight",
    "vocab_parallel_cross_entropy",
    "vocab_parallel_sample",
    "vocab_parallel_topk",
]
