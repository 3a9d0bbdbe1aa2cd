"""The LM head over shards, and its losses."""

from skewtool.parallel.head.cross_entropy import vocab_parallel_cross_entropy
from skewtool.parallel.head.hidden_parallel import HiddenParallelLMHead
from skewtool.parallel.head.linear_cross_entropy import linear_cross_entropy
from skewtool.parallel.head.log_prob import entropy, log_prob
from skewtool.parallel.head.vocab_parallel import VocabParallelLMHead

__all__ = [
    "HiddenParallelLMHead",
    "VocabParallelLMHead",
    "entropy",
    "linear_cross_entropy",
    "log_prob",
    "vocab_parallel_cross_entropy",
]
