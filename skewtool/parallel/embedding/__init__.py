"""Embedding layouts, one interface; and what keeps hidden shards distributed into the first block."""

from skewtool.parallel.embedding.routed import RoutedEmbedding

__all__ = ["RoutedEmbedding"]
