"""Tables in and out of shards: sharding, resharding, initial values, copies, norms, checkpoints."""

from skewtool.parallel.weights.checkpoint import from_checkpoint, to_checkpoint
from skewtool.parallel.weights.copies import synchronize_copies
from skewtool.parallel.weights.initial_values import initial_rows, initialize_columns, initialize_rows
from skewtool.parallel.weights.norms import clip_grad_norm_, grad_norm
from skewtool.parallel.weights.optimizer_state import reshard_state
from skewtool.parallel.weights.resharding import reshard
from skewtool.parallel.weights.same_map import check_same_map
from skewtool.parallel.weights.whole_table import shard_weight, unshard_weight

__all__ = [
    "check_same_map",
    "clip_grad_norm_",
    "from_checkpoint",
    "grad_norm",
    "initial_rows",
    "initialize_columns",
    "initialize_rows",
    "reshard",
    "reshard_state",
    "shard_weight",
    "synchronize_copies",
    "to_checkpoint",
    "unshard_weight",
]
