"""Copies of hot rows within a memory budget: which ids, how many, on which shards.

Two kinds serve different ends. An id on *every* shard is read in place: its lookups cost no traffic at all, and each
such row saves as many requests as any other copy of the id would. An id on *two* (or a few) shards lets the source
choose, which is what makes each step even: the requests that can go either way fill up what bursts left uneven.

The budget is split between the two: candidates put the hottest ids on every shard with 0, 1/8, … 4/8 of it and give the
next ids a second slot each with the rest (third slots, if all have two). Half is always kept for the choice, because
sampled windows come one by one, while the windows of a real step are neighbours, often of one long document, and burst
together. Each candidate is replayed on sampled windows with the chooser that will run. Of those whose 99th percentile of
busiest / mean is within 0.002 of the best, the one with the fewest requests to its busiest shard is taken.

With shards on several nodes the traffic between nodes comes first: the hottest ids of the second kind get a slot on every
node, which saves the requests of a whole node each, and the candidate with the least traffic between nodes is taken.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.profiling import WindowSample, WindowStatistics
from skewtool.sharding.balance import balanced_homes
from skewtool.sharding.bursts import Bursts
from skewtool.sharding.chooser import EVERY_SHARD, SlotTable, choose
from skewtool.sharding.shard_map import ShardMap

__all__ = ["CopyCandidate", "choose_copies", "judge_steps", "learnt_windows", "spread_rows"]

_SHARES = 8
_SAME_EVENNESS = 0.002
_DRAWN_STEPS = 400


@dataclass(frozen=True)
class CopyCandidate:
    """One way to spend the budget, and what it gives on the sampled windows.

    `every` ids are on every shard and `several` on two or a few. `step_p50`, `step_p99`: busiest / mean in a step;
    `requests_per_token`: rows asked of the busiest shard (median step) per token of a rank. `imbalance`: busiest / mean
    over all windows. `between_nodes_per_token`: distinct rows a rank asks of other nodes per token, on average.
    """

    every: int
    several: int
    imbalance: float
    step_p50: float
    step_p99: float
    requests_per_token: float
    between_nodes_per_token: float


def spread_rows(shard_of: npt.NDArray[np.int32], ids: npt.NDArray[np.int64], num_shards: int) -> None:
    """Gives homes to `ids` (no load) in turn, to shards with fewer rows first, so that all rows stay equal within one.

    Changes `shard_of` [V], where -1 is no home yet.
    """
    rows = np.bincount(shard_of[shard_of >= 0], minlength=num_shards)
    turn = np.argsort(rows, kind="stable")
    shard_of[ids] = turn[np.arange(ids.size) % num_shards]


@compiled
def _give_slot(
    place: Any, level: Any, token_load: Any, apart: Any, load: Any, free: Any, holders: Any, shards_per_node: Any
) -> Any:
    """The shard for one more slot of the id holders[place], its number `level`; -1 when none can take it.

    It has a free slot, does not hold the id and, with `apart`, is on a node that does not either; the least load of such
    copies wins, ties go to the next after the last slot, cyclically.
    """
    num_shards = free.size
    best = -1
    for step in range(1, num_shards):
        shard = (holders[place, level - 1] + step) % num_shards
        if free[shard] == 0 or (best >= 0 and load[shard] >= load[best]):
            continue
        held = False
        for holder in holders[place, :level]:
            held |= holder == shard or (apart and holder // shards_per_node == shard // shards_per_node)
        if not held:
            best = shard
    if best >= 0:
        holders[place, level] = best
        free[best] -= 1
        load[best] += token_load / (level + 1)
    return best


@compiled
def _further_slots(order: Any, loads: Any, free: Any, copies: Any, used: Any, holders: Any, shards_per_node: Any) -> Any:
    """Gives the ids of `order` further slots while some are free; returns how many ids got any.

    First, with several nodes, a slot on every node for the hottest ids: each saves the requests of a whole node. Then one
    more slot for each id in turn, and again. copies int32 [P, E] and used [P] are filled; holders [n, C] has the home first.
    """
    load = np.zeros(free.size, np.float64)
    slots = np.ones(order.size, np.int64)
    left = free.sum()
    nodes = free.size // shards_per_node
    for turn in range(holders.shape[1]):
        apart = turn == 0
        given = False
        for place in range(order.size):
            for _ in range(nodes - 1 if apart else 1):
                level = slots[place]
                if level >= holders.shape[1]:
                    break
                shard = _give_slot(place, level, loads[order[place]], apart, load, free, holders, shards_per_node)
                if shard < 0:
                    break
                copies[shard, used[shard]] = order[place]
                used[shard] += 1
                slots[place] += 1
                left -= 1
                given = True
            if left == 0:
                return (slots > 1).sum()
        if not given and not apart:
            break
    return (slots > 1).sum()


def _with_copies(
    loads: npt.NDArray[np.int64],
    real_vocab: int,
    num_shards: int,
    extra_rows: int,
    shards_per_node: int,
    every: int,
    bursts: Bursts | None,
) -> tuple[ShardMap, int]:
    """The map with the `every` hottest ids on all shards and second slots for the next ones; how many got those."""
    order = np.argsort(-loads[:real_vocab], kind="stable")
    hottest, rest = order[:every], order[every:]
    shard_of = balanced_homes(loads, num_shards, bursts, among=np.sort(rest))
    spread_rows(shard_of, hottest, num_shards)
    spread_rows(shard_of, np.arange(real_vocab, loads.size), num_shards)
    copies = np.full((num_shards, extra_rows), -1, np.int32)
    used = np.zeros(num_shards, np.int64)
    for shard in range(num_shards):
        away = hottest[shard_of[hottest] != shard]
        copies[shard, : away.size] = away
        used[shard] = away.size
    rest = rest[loads[rest] > 0]
    free = extra_rows - used
    most_slots = max(_most_slots(int(free.sum()), rest.size, num_shards), num_shards // shards_per_node)
    holders = np.full((rest.size, most_slots), -1, np.int32)
    holders[:, :1] = shard_of[rest][:, None]
    several = _further_slots(rest, loads, free, copies, used, holders, shards_per_node)
    homes = ShardMap.from_homes(shard_of, num_shards, real_vocab=real_vocab)
    return homes.with_copies(copies), int(several)


def _most_slots(free: int, num_ids: int, num_shards: int) -> int:
    """Slots per id when `free` slots go round among `num_ids` ids; one to spare for ids that cannot take theirs."""
    return max(1, min(num_shards, 2 + -(-free // max(num_ids, 1))))


@compiled
def _requests(
    indptr: Any, ids: Any, shard_of: Any, row_of: Any, shards: Any, num_shards: Any, shards_per_node: Any,
    longest: Any, requests: Any,
) -> None:  # fmt: skip
    """requests int64 [windows, P]: what window k, looked up by rank k % P, asks of each shard."""
    chosen = np.empty(longest, np.int32)
    for number in range(indptr.size - 1):
        window = np.sort(ids[indptr[number] : indptr[number + 1]])
        choose(window, number % num_shards, shard_of, row_of, shards, num_shards, shards_per_node, chosen)
        for i in range(window.size):
            if row_of[window[i]] != EVERY_SHARD:
                requests[number, chosen[i]] += 1


def judge_steps(table: SlotTable, windows: WindowSample, tokens_per_rank: int) -> tuple[float, float, float, float, float]:
    """Busiest / mean over all `windows`; over drawn steps its median and 99th percentile, and median requests per token;
    and requests to other nodes per token.

    Each window is looked up by one rank; a step draws one of its windows for each rank.
    """
    num_shards = table.num_shards
    requests = np.zeros((len(windows), num_shards), np.int64)
    longest = int(np.diff(windows.indptr).max())
    _requests(windows.indptr, windows.ids, *table.arrays, longest, requests)
    whole = len(windows) // num_shards
    draws = _draws(whole, num_shards) * num_shards + np.arange(num_shards)
    steps = np.zeros((_DRAWN_STEPS, num_shards), np.int64)
    for rank in range(num_shards):
        steps += requests[draws[:, rank]]
    total = requests.sum(axis=0)
    busiest, mean = steps.max(axis=1), np.maximum(steps.mean(axis=1), 1e-9)
    imbalance = np.where(busiest > 0, busiest / mean, 1.0)
    return (
        float(total.max() / max(total.mean(), 1e-9)) if total.any() else 1.0,
        float(np.percentile(imbalance, 50)),
        float(np.percentile(imbalance, 99)),
        float(np.median(busiest)) / tokens_per_rank,
        float(requests[_on_other_nodes(table, len(windows))].sum()) / len(windows) / tokens_per_rank,
    )


def _draws(number: int, num_shards: int) -> npt.NDArray[np.int64]:
    """Fixed draws below `number`, int64 [steps, P]: a hash, so that no library's generator decides which map is made."""
    stream = hashlib.shake_256(b"steps").digest(8 * _DRAWN_STEPS * num_shards)
    return (np.frombuffer(stream, "<u8") % np.uint64(number)).astype(np.int64).reshape(_DRAWN_STEPS, num_shards)


def _on_other_nodes(table: SlotTable, num_windows: int) -> npt.NDArray[np.bool_]:
    """bool [windows, P]: whether the shard is on another node than the rank that looks the window up."""
    node = np.arange(table.num_shards) // table.shards_per_node
    return np.asarray(node[np.arange(num_windows) % table.num_shards][:, None] != node[None, :])


def choose_copies(
    statistics: WindowStatistics, real_vocab: int, num_shards: int, extra_rows: int, shards_per_node: int
) -> tuple[ShardMap, CopyCandidate, Sequence[CopyCandidate]]:
    """The map that spends `extra_rows` rows per shard best, the candidate it follows, and all that were tried.

    Candidates learn bursts from the first three quarters of the sample and are judged on the rest, so their figures are
    those of text that the map has not seen; the map returned then learns from all of it. With too few windows for that
    (fewer than 4 P) they are judged on all. The sample must have at least P windows.
    """
    sample, loads = statistics.sample, statistics.presence
    learnt, unseen = learnt_windows(sample, num_shards)
    bursts = Bursts.of(statistics, num_shards, learnt)
    candidates = []
    for every in _splits(int(np.count_nonzero(loads[:real_vocab])), num_shards, extra_rows):
        shard_map, several = _with_copies(loads, real_vocab, num_shards, extra_rows, shards_per_node, every, bursts)
        table = SlotTable.of(shard_map, shards_per_node)
        candidates.append(CopyCandidate(every, several, *judge_steps(table, unseen, statistics.length)))
    best = _best(candidates, by_node=shards_per_node < num_shards)
    bursts = Bursts.of(statistics, num_shards)
    return _with_copies(loads, real_vocab, num_shards, extra_rows, shards_per_node, best.every, bursts)[0], best, candidates


def _best(candidates: Sequence[CopyCandidate], by_node: bool) -> CopyCandidate:
    """With several nodes the least traffic between them; else the least requests among the even ones."""
    if by_node:
        return min(candidates, key=lambda candidate: (candidate.between_nodes_per_token, candidate.step_p99))
    even_enough = min(candidate.step_p99 for candidate in candidates) + _SAME_EVENNESS
    even = [candidate for candidate in candidates if candidate.step_p99 <= even_enough]
    return min(even, key=lambda candidate: (candidate.requests_per_token, candidate.every))


def learnt_windows(sample: WindowSample, num_shards: int) -> tuple[int | None, WindowSample]:
    """How many windows of the sample to learn from, and those to judge on: three quarters and the rest.

    (None, all of them) where the rest would have fewer windows than a step has ranks.
    """
    if len(sample) // 4 < num_shards:
        return None, sample
    learnt = len(sample) * 3 // 4
    return learnt, sample.after(learnt)


def _splits(seen: int, num_shards: int, extra_rows: int) -> list[int]:
    """How many ids to put on every shard: those that 0, 1/8, … 4/8 of the rows have room for."""
    most = min(seen, extra_rows * num_shards // max(num_shards - 1, 1))
    numbers = sorted({most * share // _SHARES for share in range(_SHARES // 2 + 1)})
    return [every for every in numbers if every - every // num_shards <= extra_rows]
