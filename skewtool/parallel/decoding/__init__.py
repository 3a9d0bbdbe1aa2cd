"""Choosing tokens from logits that lie on shards: argmax, top-k, sampling. All results are global ids."""

from skewtool.parallel.decoding.argmax import vocab_parallel_argmax
from skewtool.parallel.decoding.sample import vocab_parallel_sample
from skewtool.parallel.decoding.top_k import vocab_parallel_topk

__all__ = ["vocab_parallel_argmax", "vocab_parallel_sample", "vocab_parallel_topk"]
