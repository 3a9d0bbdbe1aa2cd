"""`argmax`: greedy choice from logits that lie on shards."""

from torch import Tensor

from skewtool.parallel.decoding.candidates import Candidates, best
from skewtool.parallel.decoding.classes import Classes
from skewtool.parallel.groups import Group
from skewtool.sharding import ShardMap

__all__ = ["argmax"]

_MOST_ELEMENTS = 2**24  # columns copied at a time, where classes are not the first ones by id


def argmax(logits: Tensor, shard_map: ShardMap, group: Group = None) -> Tensor:
    """The most probable class of each row: local logits [..., R] -> global ids int64 [...], the same on every rank.

    Logits are float16, bfloat16, float32 or float64, column c for home slot c of this rank's shard, for the same rows on
    every rank. Ties go to the lowest global id; NaN counts as the largest value; padding ids and empty slots are never
    chosen, whatever their logit. Not differentiable. Unsharded equivalent, with logits [..., V] by id:

        ids = logits[..., :real_vocab].argmax(-1)

    Collectives of the group: one all_gather, 16 bytes per row and rank. Errors, before it: DecodingError for logits of
    another shape or dtype; MapError where the map has not one shard per rank.
    """
    classes = Classes.of(logits, shard_map, group)
    local = Candidates.joined([best(block, classes.ids) for _, block in classes.blocks(logits, _MOST_ELEMENTS)])
    return local.of_all_ranks(group).first(1).ids.reshape(logits.shape[:-1])
