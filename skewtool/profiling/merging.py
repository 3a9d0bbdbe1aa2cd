"""`merge`: profiles of one tokenizer add up, exactly; any order and grouping gives the same bytes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from skewtool.errors import ProfileError
from skewtool.profiling.profile import Profile, WindowSample, WindowStatistics

__all__ = ["merge"]


def merge(profiles: Sequence[Profile]) -> Profile:
    """The profile of all the corpora together; of more than one it has no time line, since none of them comes first.

    Errors: ProfileError when there is none, or when they cannot be added: other vocabulary sizes, tokenizers, window
    lengths, sample sizes or seeds.
    """
    if not profiles:
        raise ProfileError("nothing to merge: give at least one profile")
    first = profiles[0]
    for other in profiles[1:]:
        _check_alike(first, other)
    tokenizers = {profile.tokenizer for profile in profiles if profile.tokenizer is not None}
    if len(tokenizers) > 1:
        raise ProfileError("cannot merge profiles of different tokenizers: their ids mean different tokens")
    return Profile(
        counts=np.sum([profile.counts for profile in profiles], axis=0, dtype=np.int64),
        windows=tuple(
            _merge_windows([profile.windows[i] for profile in profiles], first.sample_size)
            for i in range(len(first.windows))
        ),
        sources=tuple(sorted(source for profile in profiles for source in profile.sources)),
        sample_size=first.sample_size,
        seed=first.seed,
        dropped=_add(profile.dropped for profile in profiles),
        notes=tuple(sorted({note for profile in profiles for note in profile.notes})),
        tokenizer=tokenizers.pop() if tokenizers else None,
        timeline=first.timeline if len(profiles) == 1 else None,
    )


def _check_alike(first: Profile, other: Profile) -> None:
    for what, mine, theirs in (
        ("vocabulary sizes", first.vocab_size, other.vocab_size),
        ("window lengths", [w.length for w in first.windows], [w.length for w in other.windows]),
        ("sample sizes", first.sample_size, other.sample_size),
        ("sample seeds", first.seed, other.seed),
    ):
        if mine != theirs:
            raise ProfileError(f"cannot merge profiles of different {what}: {mine} and {theirs}; profile them alike")


def _merge_windows(windows: Sequence[WindowStatistics], sample_size: int) -> WindowStatistics:
    return WindowStatistics(
        length=windows[0].length,
        num_windows=sum(window.num_windows for window in windows),
        presence=np.sum([window.presence for window in windows], axis=0, dtype=np.int64),
        sample=WindowSample.of((each for window in windows for each in window.sample.windows()), sample_size),
    )


def _add(dropped: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for reasons in dropped:
        total.update(reasons)
    return dict(sorted(total.items()))
