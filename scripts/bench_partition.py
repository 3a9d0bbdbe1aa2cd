"""Time, imbalance and gap of the balanced partition beside other ways to get one, in one run.

Beside the strategies of skewtool: a literal greedy with equal counts (heapq, as most people write it), and the greedy and
Karmarkar-Karp of the packages prtpy and numberpartitioning, which know no row limits. These are pure Python and are left
out where they would take minutes. Loads are the measured counts of data/llama3 for its 128,256 ids, else Zipf's law.
The gap is to the proved bound for equal rows; packages without row limits may go below it.
"""

import argparse
import heapq
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

import skewtool
from skewtool.sharding import STRATEGIES, lower_bound

LLAMA3 = Path(__file__).parent.parent / "data" / "llama3.profile.safetensors"
CASES = ((1_000, 8), (10_000, 64), (128_256, 8), (128_256, 64), (256_000, 512), (1_000_000, 512), (10_000_000, 1024))
MOST_FOR_PYTHON = 300_000
MOST_FOR_PACKAGES = 10_000
MOST_FOR_DIFFERENCING = 1_000

Loads = npt.NDArray[np.int64]
Homes = npt.NDArray[np.int64]


def loads_for(size: int) -> Loads:
    """Measured counts where there are some of this size, else 1e9 / rank with a little noise so that few are equal."""
    if size == 128_256:
        return skewtool.Profile.load(LLAMA3).counts
    noise = np.random.default_rng(0).uniform(0.9, 1.1, size)
    return (1e9 / np.arange(1, size + 1) * noise).astype(np.int64)


def literal_greedy(loads: Loads, num_shards: int) -> Homes:
    """By falling load to the least loaded shard that has a row free."""
    order = np.argsort(-loads, kind="stable").tolist()
    room = [loads.size // num_shards + (shard < loads.size % num_shards) for shard in range(num_shards)]
    heap = [(0, shard) for shard in range(num_shards)]
    homes = np.empty(loads.size, np.int64)
    for token in order:
        load, shard = heapq.heappop(heap)
        homes[token] = shard
        room[shard] -= 1
        if room[shard]:
            heapq.heappush(heap, (load + int(loads[token]), shard))
    return homes


def busiest_of_sums(sums: list[float]) -> float:
    return float(max(sums))


def package_busiest(name: str, loads: Loads, num_shards: int) -> float:
    """The busiest load that a package's algorithm reaches."""
    import numberpartitioning
    import prtpy

    items = loads.tolist()
    if name == "prtpy greedy":
        sums = prtpy.partition(prtpy.partitioning.greedy, num_shards, items, outputtype=prtpy.out.Sums)
        return busiest_of_sums(list(sums))
    algorithm = numberpartitioning.greedy if name == "numberpartitioning greedy" else numberpartitioning.karmarkar_karp
    return busiest_of_sums(list(algorithm(items, num_parts=num_shards).sizes))


def contenders(loads: Loads, num_shards: int) -> dict[str, Callable[[], float]]:
    """What is timed, by name; each returns the busiest load."""

    def busiest(homes: npt.NDArray[np.integer]) -> float:
        return float(np.bincount(homes, weights=loads.astype(np.float64), minlength=num_shards).max())

    timed: dict[str, Callable[[], float]] = {
        f"skewtool {name}": lambda name=name: busiest(STRATEGIES[name](loads, num_shards, 0))  # type: ignore[misc]
        for name in ("balanced", "snake", "strided", "random", "contiguous")
    }
    if loads.size <= MOST_FOR_PYTHON:
        timed["literal greedy, equal counts"] = lambda: busiest(literal_greedy(loads, num_shards))
    if loads.size <= MOST_FOR_PACKAGES:
        for name in ("prtpy greedy", "numberpartitioning greedy"):
            timed[name] = lambda name=name: package_busiest(name, loads, num_shards)  # type: ignore[misc]
    if loads.size <= MOST_FOR_DIFFERENCING:
        timed["numberpartitioning KK"] = lambda: package_busiest("numberpartitioning KK", loads, num_shards)
    return timed


def peak_mebibytes(run: Callable[[], float]) -> float:
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most-ids", type=int, default=10_000_000, help="skip larger cases")
    options = parser.parse_args()
    STRATEGIES["balanced"](np.array([2, 1, 1]), 2, 0)  # compiles
    for size, num_shards in CASES:
        if size > options.most_ids:
            continue
        loads = loads_for(size)
        bound = lower_bound(loads, num_shards)
        mean = int(loads.sum()) / num_shards
        print(f"\n{size:,} ids on {num_shards:,} shards; no map of equal rows below {bound / mean:.6f}")
        print(f"{'':30} {'seconds':>9} {'busiest/mean':>13} {'gap':>10}")
        timed = contenders(loads, num_shards)
        for name, run in timed.items():
            start = time.perf_counter()
            busiest = run()
            seconds = time.perf_counter() - start
            print(f"{name:30} {seconds:9.3f} {busiest / mean:13.6f} {busiest / bound - 1:10.1e}")
        print(f"memory of skewtool balanced: {peak_mebibytes(timed['skewtool balanced']):,.0f} MiB at the peak")


if __name__ == "__main__":
    main()
