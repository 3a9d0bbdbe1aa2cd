"""Tables in and out of shards: sharding, resharding, initial values, copies, norms, checkpoints."""

__all__: list[str] = []
