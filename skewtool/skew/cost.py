"""`cost`: what every embedding and LM-head layout costs a device: memory, communication and buffers, and how long it waits.

Communication is predicted collective by collective (`traffic`), as the code makes the calls, per backend. Embeddings are
judged on measured requests where there is a profile: steps drawn from its sampled windows, routed by the very chooser that
runs. Without one every rank is taken to ask every shard for as many rows, once per token. LM heads, and choices of tokens
from logits, do not depend on the text.

Layouts of embeddings are those of `embedding_traffic`, of LM heads those of `head_traffic`; a routed one is named for its
map: contiguous, strided, balanced and balanced with copies are made from the profile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skewtool.errors import MapError
from skewtool.profiling import Profile
from skewtool.sharding import ShardMap, partition, real_vocab_of
from skewtool.skew.head_buffers import head_buffers, logits_bytes
from skewtool.skew.head_traffic import DECODING, HEAD_LAYOUTS, decoding_traffic, head_traffic
from skewtool.skew.link import Link
from skewtool.skew.measured_layouts import (
    MeasuredLayout,
    Requests,
    Step,
    hidden_lookups,
    measured,
    step_requests,
    weight_bytes,
)
from skewtool.skew.plan import plan_steps, with_rows
from skewtool.skew.table_sizes import TableSizes, at_least_one
from skewtool.skew.traffic import Backend, Traffic, received, select, sent

__all__ = ["Cost", "LayoutCost", "Moved", "cost"]


@dataclass(frozen=True)
class Moved:
    """What the ranks of a layout move in one phase of a step, averaged over steps.

    busiest_bytes   the most that a rank sends or receives
    sent_max        the most that a rank sends
    sent_mean       what a rank sends on average, and receives
    collectives     calls
    seconds         of all calls, by the busiest rank of each; None where no link is known
    """

    busiest_bytes: float
    sent_max: float
    sent_mean: float
    collectives: float
    seconds: float | None

    @classmethod
    def of(cls, steps: Sequence[Sequence[Traffic]], num_ranks: int, backend: Backend, link: Link | None) -> "Moved":
        """From the calls of each step."""
        out = np.array([sent(step, num_ranks, backend) for step in steps])
        into = np.array([received(step, num_ranks, backend) for step in steps])
        return cls(
            busiest_bytes=float(np.maximum(out, into).max(axis=1).mean()),
            sent_max=float(out.max(axis=1).mean()),
            sent_mean=float(out.mean()),
            collectives=float(np.mean([len(step) for step in steps])),
            seconds=None if link is None else float(np.mean([link.seconds(step, backend) for step in steps])),
        )


@dataclass(frozen=True)
class LayoutCost:
    """One layout; bytes of one device or rank.

    kind                  "embedding", "head" or "decoding"
    weight_bytes          of the shard with the most; 0 for decoding
    optimizer_bytes       of its optimizer state
    logits_bytes          the largest buffer of logits; 0 for embeddings
    forward_buffer_bytes, backward_buffer_bytes   at the peak, see `embedding_buffers` and `head_buffers`; 0 for decoding
    forward, backward     of one step; `update`: of an optimizer update, so that copies stay equal
    """

    kind: str
    layout: str
    weight_bytes: int
    optimizer_bytes: int
    extra_rows_per_shard: int
    logits_bytes: int
    forward_buffer_bytes: int
    backward_buffer_bytes: int
    forward: Moved
    backward: Moved
    update: Moved

    @property
    def phases(self) -> tuple[Moved, Moved, Moved]:
        return self.forward, self.backward, self.update

    @property
    def collectives(self) -> float:
        return sum(each.collectives for each in self.phases)

    @property
    def step_seconds(self) -> float | None:
        """Forward, backward and update; None where no link is known."""
        seconds = [each.seconds for each in self.phases]
        return None if None in seconds else sum(each for each in seconds if each is not None)

    def to_json(self) -> dict[str, Any]:
        """All fields, and the sums over phases."""
        phases = {name: dict(vars(getattr(self, name))) for name in ("forward", "backward", "update")}
        return dict(vars(self)) | phases | {"collectives": self.collectives, "step_seconds": self.step_seconds}


@dataclass(frozen=True)
class Cost:
    """All layouts, embeddings first; `notes` say in sentences what was assumed."""

    sizes: TableSizes
    num_tokens: int
    backend: Backend
    link: Link | None
    layouts: tuple[LayoutCost, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The documented keys, of plain types; absent values are None, never NaN."""
        return {
            "shards": self.sizes.num_shards,
            "vocab_size": self.sizes.vocab_size,
            "hidden": self.sizes.hidden,
            "bytes_per_element": self.sizes.bytes_per_element,
            "tokens": self.num_tokens,
            "backend": self.backend,
            "link": None if self.link is None else dict(vars(self.link)),
            "layouts": [each.to_json() for each in self.layouts],
            "notes": list(self.notes),
        }


def cost(
    sizes: TableSizes,
    num_tokens: int,
    *,
    profile: Profile | None = None,
    maps: Mapping[str, ShardMap] | None = None,
    backend: Backend = "nccl",
    link: Link | None = None,
    raw: bool = False,
    top_k: int = 50,
    extra_rows: int | str = "10%",
    optimizer_bytes_per_element: int = 0,
) -> Cost:
    """The cost of each layout for `num_tokens` tokens of all ranks in a step; see the module, `LayoutCost` and `Moved`.

    `profile`: its windows of num_tokens / P tokens are the lookups of a rank. `maps`: by name, to be judged beside
    contiguous and strided, instead of maps made from the profile with room of `extra_rows` for copies. `raw`: routed
    layouts also with a request for every occurrence. `link`: for seconds. `top_k`: candidates of top-k.

    Errors: MapError for maps of other sizes and for numbers below 1; ProfileError when the profile has no windows of
    num_tokens / P tokens.
    """
    tokens = _even(at_least_one("num_tokens", num_tokens), sizes.num_shards)
    found = dict(maps or {})
    for name, each in found.items():
        if (each.num_shards, each.vocab_size) != (sizes.num_shards, sizes.vocab_size):
            raise MapError(
                f"map {name} has {each.num_shards} shards of {each.vocab_size} ids, but the cost is asked for "
                f"{sizes.num_shards} of {sizes.vocab_size}; give --shards and --vocab of the map"
            )
    measure = partial(measured, sizes=sizes, backend=backend)
    if profile is None:
        embeddings = _even_embeddings(measure, sizes, tokens, found)
        notes = (_ASSUMED,)
    else:
        steps = _steps(profile, sizes, num_tokens)
        found = _made(profile, sizes, tokens, extra_rows, found)
        embeddings = _measured_embeddings(measure, steps, found, raw)
        notes = (f"embeddings: averages over {len(steps)} steps of sampled windows; buffers of the largest",)

    moved = partial(Moved.of, num_ranks=sizes.num_shards, backend=backend, link=link)
    factor = optimizer_bytes_per_element
    layouts = [_of_embedding(each, sizes, moved, factor) for each in embeddings]
    layouts += [_of_head(name, sizes, tokens, moved, factor, backend) for name in HEAD_LAYOUTS]
    layouts += [_of_decoding(name, sizes, num_tokens, moved, top_k) for name in DECODING]
    return Cost(sizes, num_tokens, backend, link, tuple(layouts), notes)


_ASSUMED = (
    "assumed: every rank asks every shard for as many rows, one for each token; no repeats are spared. On real text a "
    "contiguous map is far from that: give a profile to measure"
)

_Measure = Callable[..., MeasuredLayout]


def _even(number: int, num_parts: int) -> Requests:
    """int64 [parts] that add up to `number`, the first ones one more."""
    few, more = divmod(number, num_parts)
    return few + (np.arange(num_parts) < more).astype(np.int64)


def _even_requests(tokens: Requests) -> Requests:
    """int64 [P, P]: tokens of each rank spread over the shards, what is left over from its own shard on."""
    num_ranks = tokens.size
    distance = (np.arange(num_ranks) - np.arange(num_ranks)[:, None]) % num_ranks
    few, more = np.divmod(tokens[:, None], num_ranks)
    return np.asarray(few + (distance < more), np.int64)


def _even_embeddings(
    measure: _Measure, sizes: TableSizes, tokens: Requests, maps: Mapping[str, ShardMap]
) -> Iterator[MeasuredLayout]:
    requests, own = [_even_requests(tokens)], [tokens]
    yield from _replicated(measure, own)
    yield measure("routed", "routed", requests=requests, tokens=own)
    for name, each in maps.items():
        yield measure(f"{name} routed", "routed", requests=requests, tokens=own, shard_map=each)
    yield _fixed_capacity(measure, "routed", requests, own, None)
    yield from _hidden(measure, {"hidden tokens": own}, own)


def _measured_embeddings(
    measure: _Measure, steps: Sequence[Step], maps: Mapping[str, ShardMap], raw: bool
) -> Iterator[MeasuredLayout]:
    tokens, distinct = (list(hidden_lookups(steps, distinct=each)) for each in (False, True))
    yield from _replicated(measure, tokens)
    for name, each in maps.items():
        if raw:
            occurrences = step_requests(steps, each, distinct=False)
            yield measure(f"{name} routed raw", "routed", requests=occurrences, tokens=tokens, shard_map=each)
        requests = list(step_requests(steps, each))
        yield measure(f"{name} routed", "routed", requests=requests, tokens=tokens, shard_map=each)
    yield _fixed_capacity(measure, f"{name} routed", [asked for asked, _ in requests], tokens, each)
    yield from _hidden(measure, {"hidden tokens": tokens, "hidden tokens distinct": distinct}, tokens)


def _replicated(measure: _Measure, tokens: list[Requests]) -> Iterator[MeasuredLayout]:
    for name in ("vocab all-reduce", "vocab reduce-scatter"):
        yield measure(name, name, requests=tokens, tokens=tokens)


def _fixed_capacity(
    measure: _Measure, name: str, requests: list[Requests], tokens: list[Requests], shard_map: ShardMap | None
) -> MeasuredLayout:
    """With room for the most that any rank asks of any shard, so that nothing overflows."""
    capacity = max(1, max(int(each.max()) for each in requests))
    name = f"{name}, capacity {capacity:,}"
    return measure(
        name, "routed fixed capacity", requests=requests, tokens=tokens, shard_map=shard_map, capacity=capacity
    )


def _hidden(
    measure: _Measure, lookups: Mapping[str, list[Requests]], tokens: list[Requests]
) -> Iterator[MeasuredLayout]:
    for name, each in lookups.items():
        yield measure(name, "hidden tokens", requests=each, tokens=tokens)
    for name in ("hidden replicated", "hidden kept"):
        yield measure(name, name, requests=tokens, tokens=tokens)


def _steps(profile: Profile, sizes: TableSizes, num_tokens: int) -> list[Step]:
    if num_tokens % sizes.num_shards:
        raise MapError(
            f"{num_tokens} tokens are not the same number on each of {sizes.num_shards} ranks; with a profile, give a "
            "multiple of the shards"
        )
    return plan_steps(profile.window(num_tokens // sizes.num_shards), sizes.num_shards)


def _made(
    profile: Profile, sizes: TableSizes, tokens: Requests, extra_rows: int | str, given: Mapping[str, ShardMap]
) -> dict[str, ShardMap]:
    """Maps by name, those made from the profile first; balanced ones unless maps are given."""
    whole = with_rows(profile, sizes.vocab_size)
    make = partial(
        partition, whole, sizes.num_shards, tokens_per_rank=int(tokens[0]), real_vocab=real_vocab_of(profile)
    )
    made = {name: make(name) for name in ("contiguous", "strided")}
    if not given:
        made |= {"balanced": make("balanced"), "balanced with copies": make("balanced", extra_rows=extra_rows)}
    clash = sorted(made.keys() & given.keys())
    if clash:
        raise MapError(f"a map is called {clash[0]!r} as one of the layouts to compare with; give it another name")
    return made | dict(given)


def _of_embedding(
    found: MeasuredLayout, sizes: TableSizes, moved: Callable[..., Moved], optimizer_bytes: int
) -> LayoutCost:
    forward, backward = ([select(step, phase) for step in found.traffic] for phase in ("forward", "backward"))
    return LayoutCost(
        kind="embedding",
        layout=found.name,
        weight_bytes=found.weight_bytes,
        optimizer_bytes=found.weight_bytes // sizes.bytes_per_element * optimizer_bytes,
        extra_rows_per_shard=found.extra_rows_per_shard,
        logits_bytes=0,
        forward_buffer_bytes=found.forward_buffers,
        backward_buffer_bytes=found.backward_buffers,
        forward=moved(forward),
        backward=moved(backward),
        update=moved([found.update]),
    )


def _of_head(
    name: str, sizes: TableSizes, tokens: Requests, moved: Callable[..., Moved], optimizer_bytes: int, backend: Backend
) -> LayoutCost:
    traffic, buffers = head_traffic(name, sizes, tokens), head_buffers(name, sizes, tokens, backend=backend)
    weight = weight_bytes(name, sizes, sizes.home_rows)
    return LayoutCost(
        kind="head",
        layout=name,
        weight_bytes=weight,
        optimizer_bytes=weight // sizes.bytes_per_element * optimizer_bytes,
        extra_rows_per_shard=0,
        logits_bytes=logits_bytes(name, sizes, tokens),
        forward_buffer_bytes=int(buffers.forward.max()),
        backward_buffer_bytes=int(buffers.backward.max()),
        forward=moved([select(traffic, "forward")]),
        backward=moved([select(traffic, "backward")]),
        update=moved([[]]),
    )


def _of_decoding(name: str, sizes: TableSizes, rows: int, moved: Callable[..., Moved], top_k: int) -> LayoutCost:
    traffic = decoding_traffic(name, sizes, rows, at_least_one("top_k", top_k))
    own = rows * sizes.home_rows * sizes.bytes_per_element
    return LayoutCost(
        kind="decoding",
        layout=f"top-{top_k}" if name == "top-k" else name,
        weight_bytes=0,
        optimizer_bytes=0,
        extra_rows_per_shard=0,
        logits_bytes=own * (sizes.num_shards if name == "full gather" else 1),
        forward_buffer_bytes=0,
        backward_buffer_bytes=0,
        forward=moved([traffic]),
        backward=moved([[]]),
        update=moved([[]]),
    )
