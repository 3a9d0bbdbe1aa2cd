"""Optima of small cases: a search that improves the balanced partition, and proved bounds.

For tables of a few dozen ids, where exchanges can end in a local optimum and simple bounds leave a gap. On real
vocabularies the exchanges reach the bound and nothing here is called. A search that ends proves its result; where it is
cut short, an integer program bounds what is possible.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled

__all__ = ["SMALL_IDS", "milp_bound", "proved_bound", "searched_homes"]

SMALL_IDS = 32
"""Ids up to which the search is tried."""

_MOST_NODES = 2_000_000
_MILP_NODES = 2_000  # not seconds: the bound must not depend on the machine
_EXACT_IN_FLOAT = 1 << 50


@compiled
def _next_shard(last: Any, load: Any, rows: Any, fewest: Any, beyond_left: Any) -> Any:
    """The shard after `last` (-1: the first) by (load, number) that has room, skipping those that look like it; or -1."""
    found = -1
    for shard in range(load.size):
        if rows[shard] > fewest or (rows[shard] == fewest and beyond_left == 0):
            continue
        if last >= 0:
            alike = load[shard] == load[last] and rows[shard] == rows[last]
            if alike or load[shard] < load[last] or (load[shard] == load[last] and shard < last):
                continue
        if found < 0 or load[shard] < load[found]:
            found = shard
    return found


@compiled
def _search(loads: Any, num_shards: Any, bound: Any, best: Any, homes: Any) -> Any:
    """Depth first over ids by falling load: homes int32 [V] of the least busiest load below `best`, down to `bound`.

    Returns that load and whether the search ended, so that it is the optimum. Shards are tried least loaded first; of
    those with the same load and rows only one. A path is given up when a shard, filled up to its least rows with the
    coldest ids, would reach `best`. The number of nodes is limited, not the time, so that the result is the same on every
    machine.
    """
    size = loads.size
    fewest, larger = size // num_shards, size % num_shards
    coldest = np.zeros(size + 1, np.int64)  # sums of the coldest ids
    for i in range(size):
        coldest[i + 1] = coldest[i] + loads[size - 1 - i]
    load, rows = np.zeros(num_shards, np.int64), np.zeros(num_shards, np.int64)
    at = np.full(size, -1, np.int64)  # the shard each id is on, on the current path
    depth, beyond, nodes = 0, 0, 0  # beyond: shards with a row above `fewest`
    while depth >= 0 and best > bound and nodes < _MOST_NODES:
        nodes += 1
        last = at[depth]
        if last >= 0:
            load[last] -= loads[depth]
            beyond -= rows[last] > fewest
            rows[last] -= 1
        shard = _next_shard(last, load, rows, fewest, larger - beyond)
        while shard >= 0 and load[shard] + loads[depth] + coldest[max(0, fewest - rows[shard] - 1)] >= best:
            shard = _next_shard(shard, load, rows, fewest, larger - beyond)
        if shard < 0:
            at[depth] = -1
            depth -= 1
            continue
        at[depth] = shard
        rows[shard] += 1
        beyond += rows[shard] > fewest
        load[shard] += loads[depth]
        if depth < size - 1:
            depth += 1
        else:
            best = load.max()
            homes[:] = at
    return best, depth < 0 or best <= bound


def searched_homes(loads: npt.NDArray[np.int64], num_shards: int, bound: int, busiest: int) -> npt.NDArray[np.int32] | None:
    """Homes int32 [V] whose busiest load is below `busiest`, the least that the search finds; None when there are none.

    loads int64 [V] by falling load; rows equal within one.
    """
    homes = np.empty(loads.size, np.int32)
    least, _ = _search(loads, num_shards, bound, busiest, homes)
    return homes if least < busiest else None


def proved_bound(loads: npt.NDArray[np.int64], num_shards: int, bound: int, busiest: int) -> int:
    """A bound on the busiest load, at least `bound`, beside a map that reaches `busiest`; int64 [V], V <= SMALL_IDS."""
    homes = np.empty(loads.size, np.int32)
    least, ended = _search(np.sort(loads)[::-1], num_shards, bound, busiest, homes)
    return int(least) if ended else max(bound, milp_bound(loads, num_shards))


def milp_bound(loads: npt.NDArray[np.int64], num_shards: int) -> int:
    """A proved lower bound on the busiest load of maps with equal rows (within one); the optimum when solved in time.

    The assignment as a mixed integer program, solved by HiGHS through scipy; its dual bound is valid at any time. 0 where
    loads are too large for exact floating-point sums.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

    if int(loads.max(initial=0)) * loads.size >= _EXACT_IN_FLOAT:
        return 0
    size = loads.size
    # Variables: x[id, shard], id by id, then the busiest load.
    shards = eye_array(num_shards)
    one_home = kron(eye_array(size), np.ones((1, num_shards)))
    rows = kron(np.ones((1, size)), shards)
    load = kron(loads.astype(np.float64)[None, :], shards)
    no_load = csr_array((size + num_shards, 1))
    counts = hstack([vstack([one_home, rows], format="csr"), no_load], format="csr")
    below_busiest = hstack([csr_array(load), csr_array(-np.ones((num_shards, 1)))], format="csr")
    low = np.concatenate([np.ones(size), np.full(num_shards, size // num_shards)])
    high = np.concatenate([np.ones(size), np.full(num_shards, -(-size // num_shards))])
    is_home = np.concatenate([np.ones(size * num_shards), [0.0]])
    result = milp(
        c=1 - is_home,
        integrality=is_home,
        bounds=Bounds(0, np.where(is_home == 1, 1.0, np.inf)),
        constraints=[LinearConstraint(counts, low, high), LinearConstraint(below_busiest, -np.inf, 0)],
        options={"node_limit": _MILP_NODES, "mip_rel_gap": 0.0},
    )
    bound = result.mip_dual_bound
    return 0 if bound is None or not np.isfinite(bound) else int(np.ceil(bound - 1e-4))
