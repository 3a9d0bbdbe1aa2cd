"""`ShardedEmbedding`: what all embedding layouts share. One interface, so that a layout is a choice of class."""

from torch import Tensor, nn

from skewtool.errors import RouteError
from skewtool.parallel.sharded_table import ShardedTable

__all__ = ["ShardedEmbedding"]


class ShardedEmbedding(ShardedTable):
    """An embedding, of which `weight` is this rank's part; see the layout for its shape. Values are not set: call
    `reset_parameters` or `load_table`."""

    weight: nn.Parameter

    def reset_parameters(self, seed: int, std: float = 0.02) -> None:
        """Normal values as a function of (seed, id, column) alone: the map and P never change the model. No collectives."""
        raise NotImplementedError

    def load_table(self, table: Tensor) -> None:
        """Takes this rank's part of a whole table [V, H]; empty slots become zero. No collectives."""
        raise NotImplementedError

    def gather_table(self) -> Tensor:
        """The whole table [V, H] on every rank, from homes: one all_gather."""
        raise NotImplementedError

    def _refuse_bad_ids(self, flat: Tensor) -> None:
        """For ids that every rank has alike: all raise. Waits for the device."""
        bad = (flat < 0) | (flat >= self.shard_map.real_vocab)
        if bad.any():
            position = int(bad.long().argmax())
            raise RouteError(
                f"every rank has id {int(flat[position])} at position {position} (flattened); ids must be at least 0 and "
                f"below {self.shard_map.real_vocab}"
            )
