"""`vocab_parallel_sample`: one token per row, drawn from logits that lie on shards, the same on every rank.

Gumbel-max (Gumbel 1954; Maddison, Tarlow, Minka, "A* Sampling", 2014): the class with the highest logit + temperature x
noise is a draw from the softmax of logits / temperature, and the highest over shards is the highest of all. The noise of a
class depends on seed, step, row and global id alone, so a draw does not change with the number of shards, the map, the batch
around a row, or the filters of other rows; and without a generator there is none that ranks could have in other states.
"""

import torch
from torch import Tensor

from skewtool.parallel.decoding.candidates import Candidates, best
from skewtool.parallel.decoding.classes import Classes
from skewtool.parallel.decoding.filters import filtered
from skewtool.parallel.decoding.noise import gumbel, row_keys
from skewtool.parallel.decoding.order import keys_of, values_of
from skewtool.parallel.decoding.settings import Settings, whole_number, whole_per_row
from skewtool.parallel.decoding.threshold import Threshold
from skewtool.parallel.groups import Group
from skewtool.sharding import ShardMap

__all__ = ["vocab_parallel_sample"]

_MOST_ELEMENTS = 2**22  # of float64 noise at a time
_MOST_ELEMENTS_ON_CPU = 2**17  # what its caches hold


def vocab_parallel_sample(
    logits: Tensor,
    shard_map: ShardMap,
    group: Group = None,
    *,
    seed: int,
    step: int,
    rows: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    top_k: int | Tensor | None = None,
    top_p: float | Tensor | None = None,
    min_p: float | Tensor | None = None,
) -> Tensor:
    """Draws a class for each row: local logits [..., R] -> global ids int64 [...], the same on every rank.

    Logits as for `argmax`; all arguments must be the same on every rank. Unsharded equivalent, with
    logits [..., V] by id, noise `gumbel(row_keys(seed, step, rows), ids)`, and what filters leave out at -inf:

        scores = logits[..., :real_vocab].double() + temperature * noise[..., :real_vocab]
        ids = scores.argmax(-1)

    seed, step    whole numbers, modulo 2^64
    rows          integers, keys of the rows; 0, 1, 2, ... of the flattened rows when not given. A row keeps its draw in
                  another batch if it keeps its key
    temperature   0 is greedy: the highest logit, ties to the lowest id
    top_k         only the k classes of `vocab_parallel_topk`. Not applied unless given
    top_p         only the smallest set of most probable classes, ties to the lowest ids, that has top_p of the
                  probability that top_k leaves; 1 and more keeps all. Exact, see `skewtool.parallel.decoding.nucleus`
    min_p         only classes whose probability is at least min_p times the highest

    Settings and `rows` are numbers or tensors that broadcast to [...]; tensors on a GPU cost a wait of the host each.
    The full distribution is drawn from, with tails of float64; all scores are float64. No generator is read or moved.

    A row with NaN in any class, or with -inf in all, has no distribution: its id is -1. +inf is certain, the lowest id
    among several. Classes of -inf, padding ids and empty slots are never drawn.

    Collectives of the group: one all_gather of winners, 16 bytes per row and rank. Before it, with top_k, one all_gather
    of 16 min(k, R) bytes. With top_p or min_p, unless every such row has top_k too: one all_reduce of 8 bytes per row;
    and with top_p 2 of 8, then 8 of 120 (16 for float64, 4 for 16-bit logits), one of 24, and 8 of 120 more if equal
    logits must be told apart by id. Those of top_p and min_p are made once for each 2^22 / R rows.

    Errors, before all of them: DecodingError for logits of another shape or dtype, and for settings out of range;
    MapError where the map has not one shard per rank.
    """
    classes = Classes.of(logits, shard_map, group)
    shape = logits.shape[:-1]
    given = torch.arange(shape.numel()).reshape(shape) if rows is None else rows
    keys = row_keys(whole_number("seed", seed), whole_number("step", step), whole_per_row("rows", given, shape))
    settings = Settings.checked(
        shape, logits.device, shard_map.real_vocab, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p
    )
    threshold = filtered(logits, classes, settings, group) if settings.filters else None
    winner = _local_winners(logits, classes, keys.to(logits.device), settings, threshold).of_all_ranks(group).first(1)
    decided = values_of(winner.keys, torch.float64) > -torch.inf  # neither -inf nor NaN
    return torch.where(decided, winner.ids, -1).reshape(shape)


def _local_winners(
    logits: Tensor, classes: Classes, keys: Tensor, settings: Settings, threshold: Threshold | None
) -> Candidates:
    """The class of this rank with the highest score in each row, [N, 1]; NaN where any class has it."""
    parts = []
    for rows, block in classes.blocks(logits, _MOST_ELEMENTS_ON_CPU if logits.device.type == "cpu" else _MOST_ELEMENTS):
        scores = gumbel(keys[rows], classes.ids).mul_(settings.temperature[rows, None]).add_(block)
        if threshold is not None:
            stays = threshold.of_rows(rows).keeps(keys_of(block), classes.ids)
            scores.masked_fill_(~(stays | block.isnan()), -torch.inf)
        parts.append(best(scores, classes.ids))
    return Candidates.joined(parts)
