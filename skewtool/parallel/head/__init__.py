"""The LM head over shards, and its losses."""

__all__: list[str] = []
