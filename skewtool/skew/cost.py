"""`cost`: what every embedding and LM-head layout costs a device: memory, communication and buffers, and how long it waits.

Communication is predicted collective by collective (`traffic`), as the code makes the calls, per backend. Embeddings are
judged on measured requests where there is a profile: steps drawn from its sampled windows, routed by the very chooser that
runs. Without one every rank is taken to ask every shard for as many rows, once per token. LM heads, and choices of tokens
from logits, do not depend on the text.

Layouts of embeddings are those of `embedding_traffic`, of LM heads those of `head_traffic`; a routed one is named for its
map: contiguous, strided, balanced and balanced with copies are made from the profile.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from skewtool.profiling import Profile
from skewtool.sharding import ShardMap
from skewtool.skew.compared_layouts import compared_layouts, even
from skewtool.skew.head_buffers import head_buffers, logits_bytes
from skewtool.skew.head_traffic import DECODING, HEAD_LAYOUTS, decoding_traffic, head_traffic
from skewtool.skew.link import Link
from skewtool.skew.measured_layouts import MeasuredLayout, Requests, weight_bytes
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
    update_buffer_bytes   at the peak, see `copy_buffers`; 0 without copies
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
    update_buffer_bytes: int
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
    tokens = even(at_least_one("num_tokens", num_tokens), sizes.num_shards)
    embeddings, note = compared_layouts(
        sizes, tokens, profile=profile, maps=maps or {}, backend=backend, raw=raw, extra_rows=extra_rows
    )
    moved = partial(Moved.of, num_ranks=sizes.num_shards, backend=backend, link=link)
    factor = optimizer_bytes_per_element
    layouts = [_of_embedding(each, sizes, moved, factor) for each in embeddings]
    layouts += [_of_head(name, sizes, tokens, moved, factor, backend) for name in HEAD_LAYOUTS]
    layouts += [_of_decoding(name, sizes, num_tokens, moved, top_k) for name in DECODING]
    return Cost(sizes, num_tokens, backend, link, tuple(layouts), (note,))


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
        update_buffer_bytes=found.update_buffers,
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
        update_buffer_bytes=0,
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
        update_buffer_bytes=0,
        forward=moved([traffic]),
        backward=moved([[]]),
        update=moved([[]]),
    )
