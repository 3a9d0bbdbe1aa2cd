"""Which columns of a hidden size H each of P ranks holds: all as many, or one more on the first H % P."""

import torch
from torch import Tensor

__all__ = ["columns_of", "joined_columns", "most_columns"]


def columns_of(hidden: int, num_ranks: int, rank: int) -> range:
    """The columns of a rank; consecutive ranks have consecutive columns."""
    few, more = divmod(hidden, num_ranks)
    start = rank * few + min(rank, more)
    return range(start, start + few + (rank < more))


def most_columns(hidden: int, num_ranks: int) -> int:
    """The columns of rank 0, which has the most."""
    return len(columns_of(hidden, num_ranks, 0))


def joined_columns(parts: Tensor, hidden: int) -> Tensor:
    """parts [P, n, most_columns], of each rank, with padding behind -> [n, hidden]."""
    widths = [len(columns_of(hidden, parts.size(0), rank)) for rank in range(parts.size(0))]
    return torch.cat([part[:, :width] for part, width in zip(parts, widths, strict=True)], dim=1)
