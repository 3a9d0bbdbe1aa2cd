"""The embedding layouts that `cost` sets side by side: on loads measured on a profile, or on even ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from skewtool.errors import MapError
from skewtool.profiling import Profile
from skewtool.sharding import ShardMap, partition, real_vocab_of
from skewtool.skew.measured_layouts import (
    MeasuredLayout,
    Requests,
    Step,
    hidden_lookups,
    measured,
    step_requests,
)
from skewtool.skew.plan import plan_steps, with_rows
from skewtool.skew.table_sizes import TableSizes
from skewtool.skew.traffic import Backend

__all__ = ["compared_layouts", "even"]

_Measure = Callable[..., MeasuredLayout]

_ASSUMED = (
    "assumed: every rank asks every shard for as many rows, one for each token; no repeats are spared. On real text a "
    "contiguous map is far from that: give a profile to measure"
)


def compared_layouts(
    sizes: TableSizes,
    tokens: Requests,
    *,
    profile: Profile | None,
    maps: Mapping[str, ShardMap],
    backend: Backend,
    raw: bool,
    extra_rows: int | str,
) -> tuple[list[MeasuredLayout], str]:
    """All layouts for tokens int64 [P] of each rank, and a sentence on where their loads come from; arguments as of
    `cost`. Errors: as of `cost`."""
    for name, each in maps.items():
        if (each.num_shards, each.vocab_size) != (sizes.num_shards, sizes.vocab_size):
            raise MapError(
                f"map {name} has {each.num_shards} shards of {each.vocab_size} ids, but the cost is asked for "
                f"{sizes.num_shards} of {sizes.vocab_size}; give --shards and --vocab of the map"
            )
    measure = partial(measured, sizes=sizes, backend=backend)
    if profile is None:
        return list(_even_layouts(measure, tokens, maps)), _ASSUMED
    steps = _steps(profile, tokens)
    made = _made(profile, sizes, tokens, extra_rows, maps)
    note = f"embeddings: averages over {len(steps)} steps of sampled windows; buffers of the largest"
    return list(_measured_layouts(measure, steps, made, raw)), note


def even(number: int, num_parts: int) -> Requests:
    """int64 [parts] that add up to `number`, the first ones one more."""
    few, more = divmod(number, num_parts)
    return few + (np.arange(num_parts) < more).astype(np.int64)


def _even_requests(tokens: Requests) -> Requests:
    """int64 [P, P]: tokens of each rank spread over the shards, what is left over from its own shard on."""
    num_ranks = tokens.size
    distance = (np.arange(num_ranks) - np.arange(num_ranks)[:, None]) % num_ranks
    few, more = np.divmod(tokens[:, None], num_ranks)
    return np.asarray(few + (distance < more), np.int64)


def _even_layouts(measure: _Measure, tokens: Requests, maps: Mapping[str, ShardMap]) -> Iterator[MeasuredLayout]:
    requests, own = [_even_requests(tokens)], [tokens]
    yield from _replicated(measure, own)
    yield measure("routed", "routed", requests=requests, tokens=own)
    for name, each in maps.items():
        yield measure(f"{name} routed", "routed", requests=requests, tokens=own, shard_map=each)
    yield _fixed_capacity(measure, "routed", int(requests[0].max()), requests=requests, tokens=own)
    yield from _hidden(measure, {"hidden tokens": own}, own)


def _measured_layouts(
    measure: _Measure, steps: Sequence[Step], maps: Mapping[str, ShardMap], raw: bool
) -> Iterator[MeasuredLayout]:
    tokens, distinct = (list(hidden_lookups(steps, distinct=each)) for each in (False, True))
    yield from _replicated(measure, tokens)
    for name, each in maps.items():
        if raw:
            occurrences = step_requests(steps, each, distinct=False)
            yield measure(f"{name} routed raw", "routed", requests=occurrences, tokens=tokens, shard_map=each)
        yield measure(f"{name} routed", "routed", requests=step_requests(steps, each), tokens=tokens, shard_map=each)
    capacity = max(int(asked.max()) for asked, _ in step_requests(steps, each))
    yield _fixed_capacity(
        measure, f"{name} routed", capacity, requests=step_requests(steps, each), tokens=tokens, shard_map=each
    )
    yield from _hidden(measure, {"hidden tokens": tokens, "hidden tokens distinct": distinct}, tokens)


def _replicated(measure: _Measure, tokens: list[Requests]) -> Iterator[MeasuredLayout]:
    for name in ("vocab all-reduce", "vocab reduce-scatter"):
        yield measure(name, name, requests=tokens, tokens=tokens)


def _fixed_capacity(measure: _Measure, name: str, most_asked: int, **loads: Any) -> MeasuredLayout:
    """With room for the most that any rank asks of any shard, so that nothing overflows."""
    capacity = max(1, most_asked)
    return measure(f"{name}, capacity {capacity:,}", "routed fixed capacity", capacity=capacity, **loads)


def _hidden(measure: _Measure, lookups: Mapping[str, list[Requests]], tokens: list[Requests]) -> Iterator[MeasuredLayout]:
    for name, each in lookups.items():
        yield measure(name, "hidden tokens", requests=each, tokens=tokens)
    for name in ("hidden replicated", "hidden kept"):
        yield measure(name, name, requests=tokens, tokens=tokens)


def _steps(profile: Profile, tokens: Requests) -> list[Step]:
    if tokens.min() < tokens.max():
        raise MapError(
            f"{tokens.sum()} tokens are not the same number on each of {tokens.size} ranks; with a profile, give a "
            "multiple of the shards"
        )
    return plan_steps(profile.window(int(tokens[0])), tokens.size)


def _made(
    profile: Profile, sizes: TableSizes, tokens: Requests, extra_rows: int | str, given: Mapping[str, ShardMap]
) -> dict[str, ShardMap]:
    """Maps by name, those made from the profile first; balanced ones unless maps are given."""
    whole = with_rows(profile, sizes.vocab_size)
    make = partial(partition, whole, sizes.num_shards, tokens_per_rank=int(tokens[0]), real_vocab=real_vocab_of(profile))
    made = {name: make(name) for name in ("contiguous", "strided")}
    if not given:
        made |= {"balanced": make("balanced"), "balanced with copies": make("balanced", extra_rows=extra_rows)}
    clash = sorted(made.keys() & given.keys())
    if clash:
        raise MapError(f"a map is called {clash[0]!r} as one of the layouts to compare with; give it another name")
    return made | dict(given)
