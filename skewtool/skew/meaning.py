"""What the numbers mean for a user, in words: where skew is paid, and where it is not."""

__all__ = ["WHERE_SKEW_DOES_NOT_MATTER"]

WHERE_SKEW_DOES_NOT_MATTER = (
    "Skew is paid where lookups are routed (all-to-all), in their backward, in the scatter-add of hot rows' gradients "
    "and in sparse optimizer updates.",
    "It does not matter with replicated ids and mask + all-reduce: every rank moves the same bytes under any map.",
    "It does not matter for the LM head and the softmax: they are dense, only the number of rows per shard counts.",
)
