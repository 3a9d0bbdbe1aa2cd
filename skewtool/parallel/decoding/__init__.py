"""Choosing tokens from logits that lie on shards: argmax, top-k, sampling. All results are global ids."""

from skewtool.parallel.decoding.argmax import argmax
from skewtool.parallel.decoding.sample import vocab_parallel_sample
from skewtool.parallel.decoding.top_k import vocab_parallel_topk

__all__ = ["argmax", "vocab_parallel_sample", "vocab_parallel_topk"]
