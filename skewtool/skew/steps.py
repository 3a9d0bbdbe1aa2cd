"""Steps to replay: which window each source rank looks up in each step.

A step is what P source ranks process between two collectives, one window of tokens_per_rank tokens each. From a corpus
steps are consecutive windows; from a sample, or a corpus with fewer windows than ranks, they are seeded draws.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from skewtool.profiling import WindowContent, WindowSample

__all__ = ["DRAWN_STEPS", "consecutive_steps", "drawn_steps", "sample_windows"]

DRAWN_STEPS = 200
"""Steps drawn from a sample, for up to 128 ranks; fewer for more, so that about as many windows are looked up."""

_MOST_DRAWN_WINDOWS = 25_600
_LEAST_STEPS = 20

Step = list[WindowContent]


def consecutive_steps(windows: Iterable[WindowContent], num_ranks: int, seed: int = 0) -> Iterator[Step]:
    """Groups windows by `num_ranks`, in order; an incomplete last group is left out.

    With fewer windows than ranks the steps are drawn instead.
    """
    step: Step = []
    whole = False
    for ids, counts in windows:
        step.append((ids, counts))
        if len(step) == num_ranks:
            yield step
            step, whole = [], True
    if not whole:
        yield from drawn_steps(step, num_ranks, seed)


def drawn_steps(windows: Step, num_ranks: int, seed: int = 0, num_steps: int | None = None) -> Iterator[Step]:
    """Draws of one window per rank: without repeats within a step where there are enough windows."""
    if not windows:
        return
    if num_steps is None:
        num_steps = max(_LEAST_STEPS, min(DRAWN_STEPS, _MOST_DRAWN_WINDOWS // num_ranks))
    generator = np.random.default_rng(seed % 2**64)
    for _ in range(num_steps):
        chosen = generator.choice(len(windows), num_ranks, replace=len(windows) < num_ranks)
        yield [windows[i] for i in chosen]


def sample_windows(sample: WindowSample) -> Step:
    """The windows of a profile's sample, ids ascending."""
    orders = [(ids, counts, np.argsort(ids)) for _, ids, counts in sample.windows()]
    return [(ids[order], counts[order]) for ids, counts, order in orders]
