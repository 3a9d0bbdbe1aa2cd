"""`plan`: the embedding layouts side by side, by the bytes of the busiest rank and by memory, and which to take.

The lookups are those of the profile's sampled windows, drawn as steps; balanced maps are made from the same profile, so
on text that it has not seen they do a little worse. Layouts:

  contiguous all-reduce, contiguous reduce-scatter   every rank knows all ids; the same bytes for any map
  contiguous, strided, balanced routed               each rank asks for its distinct ids, over an all-to-all
  balanced with copies                               the same with copies of hot rows, as many as fit and can pay
  hidden, hidden distinct                            H / P columns of every row per shard, for all lookups or distinct ids

Forward counts what the busiest rank sends, backward the gradients that come back to it for what it served. What a rank
receives forward, and sends backward, its text decides, and no map of single rows changes it.

Left out are the optimizer's state and the weight's gradient, which grow with the weight of every layout alike.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from skewtool.errors import MapError, ProfileError
from skewtool.profiling import Profile, WindowStatistics
from skewtool.sharding import ShardMap, partition, real_vocab_of
from skewtool.skew.advice import advise
from skewtool.skew.copy_gradients import copy_pays_from, ids_whose_copies_pay
from skewtool.skew.measured_layouts import MeasuredLayout, Step, hidden_lookups, measured, step_requests
from skewtool.skew.steps import drawn_steps, sample_windows
from skewtool.skew.table_sizes import TableSizes, at_least_one
from skewtool.skew.traffic import PerRank, Traffic, received, sent

__all__ = ["LayoutPlan", "Plan", "plan", "plan_steps", "with_rows"]


@dataclass(frozen=True)
class LayoutPlan:
    """One layout, all in bytes of one shard or its rank.

    `weight_bytes` and `temporary_bytes` (a lookup's buffers, the largest step) are what `fits` compares with the memory;
    `busiest_forward_bytes` and `busiest_backward_bytes` are moved in a lookup step, `gradient_sync_bytes` in an optimizer
    update for copies, and `busiest_bytes_per_update` is all of it: lookups per update x (forward + backward) + sync. In
    inference backward and sync are 0, and an update is one lookup step.
    """

    layout: str
    weight_bytes: int
    temporary_bytes: int
    fits: bool
    busiest_forward_bytes: int
    busiest_backward_bytes: int
    gradient_sync_bytes: int
    busiest_bytes_per_update: int
    extra_rows_per_shard: int

    @classmethod
    def of(
        cls, found: MeasuredLayout, num_ranks: int, lookups_per_update: int | None, memory_per_shard: int | None
    ) -> "LayoutPlan":
        """What a layout moves in all; without `lookups_per_update` there are no gradients."""

        def most(way: Callable[..., PerRank]) -> Callable[[list[Traffic]], int]:
            return lambda calls: int(way(calls, num_ranks, "nccl").max())

        forward, backward, sync = found.average("forward", most(sent)), 0, 0
        if lookups_per_update is not None:
            backward, sync = found.average("backward", most(received)), most(sent)(found.update)
        return cls(
            layout=found.name,
            weight_bytes=found.weight_bytes,
            temporary_bytes=found.forward_buffers,
            fits=memory_per_shard is None or found.weight_bytes + found.forward_buffers <= memory_per_shard,
            busiest_forward_bytes=forward,
            busiest_backward_bytes=backward,
            gradient_sync_bytes=sync,
            busiest_bytes_per_update=(lookups_per_update or 1) * (forward + backward) + sync,
            extra_rows_per_shard=found.extra_rows_per_shard,
        )


@dataclass(frozen=True)
class Plan:
    """The layouts, simplest first; `best`, the one of those that fit with the fewest bytes per update, None if none fits;
    and `advice` in sentences.

    `copy_pays_from_presence`: the share of windows that must hold an id for a copy of it to pay; `ids_whose_copies_pay`:
    how many ids of the profile do. See `skewtool.skew.copy_gradients`.
    """

    sizes: TableSizes
    tokens_per_rank: int
    lookups_per_update: int | None
    memory_per_shard: int | None
    layouts: tuple[LayoutPlan, ...]
    best: str | None
    advice: tuple[str, ...]
    copy_pays_from_presence: float
    ids_whose_copies_pay: int

    def to_json(self) -> dict[str, Any]:
        """The documented keys, of plain types; absent values are None, never NaN."""
        return {
            "shards": self.sizes.num_shards,
            "vocab_size": self.sizes.vocab_size,
            "hidden": self.sizes.hidden,
            "bytes_per_element": self.sizes.bytes_per_element,
            "tokens_per_rank": self.tokens_per_rank,
            "lookups_per_update": self.lookups_per_update,
            "memory_per_shard": self.memory_per_shard,
            "layouts": [dict(vars(layout)) for layout in self.layouts],
            "best": self.best,
            "advice": list(self.advice),
            "copy_pays_from_presence": self.copy_pays_from_presence,
            "ids_whose_copies_pay": self.ids_whose_copies_pay,
        }

    def table(self) -> pd.DataFrame:
        """One row per layout, for printing or further work."""
        return pd.DataFrame([vars(layout) for layout in self.layouts])


def plan(
    profile: Profile,
    *,
    num_shards: int,
    hidden: int,
    bytes_per_element: int,
    vocab_size: int | None = None,
    tokens_per_rank: int | None = None,
    memory_per_shard: int | None = None,
    extra_rows: int | str = "10%",
    lookups_per_update: int | None = None,
) -> Plan:
    """Predicts each layout for the text of `profile` and says which to take; see the module and `Plan`.

    `vocab_size`: rows of the table (default: the profile's); those beyond the profile's ids are padding.
    `tokens_per_rank`: a window length of the profile (default: its longest). `memory_per_shard`: bytes for the weight and
    a lookup's buffers (default: no limit). `extra_rows`: room for copies on each shard, rows or a percentage of the home
    rows; less is used where less fits, or less can pay. `lookups_per_update`: micro-steps for each optimizer update,
    None for inference.

    Errors: MapError for a vocabulary smaller than the profile's and for numbers below 1; ProfileError when the profile
    has no windows of `tokens_per_rank` tokens, or none was sampled.
    """
    windows = profile.window(profile.tokens_per_rank if tokens_per_rank is None else tokens_per_rank)
    rows = profile.vocab_size if vocab_size is None else vocab_size
    sizes = TableSizes(num_shards, rows, hidden, bytes_per_element)
    if memory_per_shard is not None:
        memory_per_shard = at_least_one("memory_per_shard, in bytes,", memory_per_shard)
    pays_from = copy_pays_from(sizes.bytes_per_row, lookups_per_update)
    number_that_pay = ids_whose_copies_pay(windows, pays_from)
    make = partial(
        partition, with_rows(profile, sizes.vocab_size), sizes.num_shards, tokens_per_rank=windows.length,
        real_vocab=real_vocab_of(profile),
    )  # fmt: skip
    limits = _Limits(extra_rows, memory_per_shard, None if lookups_per_update is None else number_that_pay)
    layouts = tuple(
        LayoutPlan.of(each, sizes.num_shards, lookups_per_update, memory_per_shard)
        for each in _layouts(sizes, plan_steps(windows, sizes.num_shards), make, limits)
    )
    fitting = [layout for layout in layouts if layout.fits]
    best = min(fitting, key=lambda layout: layout.busiest_bytes_per_update, default=None)
    return Plan(
        sizes=sizes,
        tokens_per_rank=windows.length,
        lookups_per_update=lookups_per_update,
        memory_per_shard=memory_per_shard,
        layouts=layouts,
        best=None if best is None else best.layout,
        advice=advise(layouts, best, lookups_per_update, memory_per_shard, pays_from, number_that_pay),
        copy_pays_from_presence=pays_from,
        ids_whose_copies_pay=number_that_pay,
    )


@dataclass(frozen=True)
class _Limits:
    """How many copies there may be: `extra_rows` as asked for; memory in bytes per shard; and the number of ids whose
    copies pay for their gradients. None: no limit."""

    extra_rows: int | str
    memory_per_shard: int | None
    ids_that_pay: int | None

    def most_rows(self, balanced: MeasuredLayout, sizes: TableSizes) -> int | None:
        """Rows per shard that memory leaves beside the balanced layout, and at most those that the ids whose copies pay
        take on every shard; None without such limits."""
        limits = []
        if self.memory_per_shard is not None:
            limits.append((self.memory_per_shard - balanced.weight_bytes - balanced.forward_buffers) // sizes.bytes_per_row)
        if self.ids_that_pay is not None:
            limits.append(-(-self.ids_that_pay * (sizes.num_shards - 1) // sizes.num_shards))
        return max(0, min(limits)) if limits else None


def _layouts(
    sizes: TableSizes, steps: Sequence[Step], make: Callable[..., ShardMap], limits: _Limits
) -> Iterator[MeasuredLayout]:
    """All layouts, simplest first; `make(strategy, extra_rows=0)` makes the maps."""
    tokens, distinct = (list(hidden_lookups(steps, distinct=each)) for each in (False, True))

    def routed(name: str, shard_map: ShardMap) -> MeasuredLayout:
        return measured(name, "routed", sizes, step_requests(steps, shard_map), tokens, shard_map=shard_map)

    for name in ("all-reduce", "reduce-scatter"):
        yield measured(f"contiguous {name}", f"vocab {name}", sizes, tokens, tokens)
    for strategy in ("contiguous", "strided", "balanced"):
        found = routed(f"{strategy} routed", make(strategy))
        yield found
    copies = make("balanced", extra_rows=limits.extra_rows)
    most = limits.most_rows(found, sizes)
    if most is not None and copies.num_slots - copies.home_slots > most:
        copies = make("balanced", extra_rows=most)
    if copies.has_copies:
        yield routed("balanced with copies", copies)
    yield measured("hidden", "hidden tokens", sizes, tokens, tokens)
    yield measured("hidden distinct", "hidden tokens", sizes, distinct, tokens)


def plan_steps(windows: WindowStatistics, num_shards: int) -> list[Step]:
    """Drawn steps of the sampled windows. Errors: ProfileError where none was sampled."""
    if not len(windows.sample):
        raise ProfileError(
            f"the profile has no sampled window of {windows.length} tokens to predict lookups from; profile more text, or "
            "with a shorter --window"
        )
    return list(drawn_steps(sample_windows(windows.sample), num_shards))


def with_rows(profile: Profile, vocab_size: int) -> Profile:
    """The profile with ids that never occur added up to `vocab_size`."""
    more = vocab_size - profile.vocab_size
    if more < 0:
        raise MapError(
            f"the vocabulary must have at least the {profile.vocab_size} ids of the profile, got {vocab_size}; give more "
            "rows, or profile again with the right tokenizer"
        )
    if not more:
        return profile
    windows = tuple(replace(each, presence=np.pad(each.presence, (0, more))) for each in profile.windows)
    return replace(profile, counts=np.pad(profile.counts, (0, more)), windows=windows)
