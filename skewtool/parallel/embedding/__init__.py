"""Embedding layouts, one interface; and what keeps hidden shards distributed into the first block."""

from skewtool.parallel.embedding.hidden_norms import HiddenShardedLayerNorm, HiddenShardedRMSNorm
from skewtool.parallel.embedding.hidden_parallel import HiddenParallelEmbedding
from skewtool.parallel.embedding.routed import RoutedEmbedding
from skewtool.parallel.embedding.row_parallel_linear import RowParallelLinear
from skewtool.parallel.embedding.sharded_embedding import ShardedEmbedding
from skewtool.parallel.embedding.vocab_parallel import VocabParallelEmbedding
from skewtool.parallel.embedding.vocab_sharded import VocabShardedEmbedding

__all__ = [
    "HiddenParallelEmbedding",
    "HiddenShardedLayerNorm",
    "HiddenShardedRMSNorm",
    "RoutedEmbedding",
    "RowParallelLinear",
    "ShardedEmbedding",
    "VocabParallelEmbedding",
    "VocabShardedEmbedding",
]
