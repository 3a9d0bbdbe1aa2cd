"""`vocab_parallel_topk`: the k largest logits of each row, from logits that lie on shards."""

from torch import Tensor

from skewtool.errors import DecodingError
from skewtool.parallel.decoding.candidates import Candidates, most
from skewtool.parallel.decoding.classes import Classes
from skewtool.parallel.decoding.order import values_of
from skewtool.parallel.decoding.settings import whole_number
from skewtool.parallel.groups import Group
from skewtool.sharding import ShardMap

__all__ = ["top_candidates", "vocab_parallel_topk"]

_MOST_ELEMENTS = 2**22  # int64 temporaries of so many elements at a time


def vocab_parallel_topk(logits: Tensor, k: int, shard_map: ShardMap, group: Group = None) -> tuple[Tensor, Tensor]:
    """The k best classes of each row: local logits [..., R] -> values [..., k'], global ids int64 [..., k'].

    k' = min(k, real_vocab); the result is the same on every rank. Values have the dtype of the logits and descend; ties,
    also those for the last place, go to the lowest global id; NaN counts as the largest value. Classes of -inf are
    returned where others do not suffice, padding ids and empty slots never. Logits as for `argmax`. Not
    differentiable. Unsharded equivalent, with logits [..., V] by id:

        values, ids = logits[..., :real_vocab].sort(dim=-1, descending=True, stable=True)
        values, ids = values[..., :k], ids[..., :k]

    Collectives of the group: one all_gather, 16 min(k, R) bytes per row and rank. Errors, before it: DecodingError for
    k below 1 and for logits of another shape or dtype; MapError where the map has not one shard per rank.
    """
    if whole_number("k", k) < 1:
        raise DecodingError(f"k must be at least 1, got {k}")
    classes = Classes.of(logits, shard_map, group)
    found = top_candidates(logits, classes, min(k, shard_map.real_vocab), group)
    shape = (*logits.shape[:-1], found.ids.size(1))
    return values_of(found.keys, logits.dtype).reshape(shape), found.ids.reshape(shape)


def top_candidates(logits: Tensor, classes: Classes, k: int, group: Group) -> Candidates:
    """The best k of each row, best first, k at most the number of classes: local logits [..., R] -> [N, k]."""
    number = min(k, logits.size(-1))
    parts = [most(block, classes.ids, number) for _, block in classes.blocks(logits, _MOST_ELEMENTS)]
    return Candidates.joined(parts).of_all_ranks(group).first(k)
