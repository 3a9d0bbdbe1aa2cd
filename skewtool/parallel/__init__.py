"""Sharded vocabulary tables on torch.distributed. Needs torch (`pip install skewtool[torch]`)."""

from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.embedding import RoutedEmbedding
from skewtool.parallel.routing import FixedCapacityRoute, Route
from skewtool.parallel.weights import (
    check_same_map,
    clip_grad_norm_,
    from_checkpoint,
    grad_norm,
    initial_rows,
    initialize_columns,
    initialize_rows,
    reshard,
    reshard_state,
    shard_weight,
    synchronize_copies,
    to_checkpoint,
    unshard_weight,
)

__all__ = [
    "Collective",
    "FixedCapacityRoute",
    "Route",
    "RoutedEmbedding",
    "check_same_map",
    "clip_grad_norm_",
    "from_checkpoint",
    "grad_norm",
    "initial_rows",
    "initialize_columns",
    "initialize_rows",
    "record_collectives",
    "reshard",
    "reshard_state",
    "shard_weight",
    "synchronize_copies",
    "to_checkpoint",
    "unshard_weight",
]
