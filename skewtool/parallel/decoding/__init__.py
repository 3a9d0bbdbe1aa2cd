"""Choosing tokens from logits that lie on shards: top-k, sampling."""

__all__: list[str] = []
