"""`measure_skew`: layouts side by side, on average and step by step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from skewtool.errors import MapError, ProfileError
from skewtool.profiling import Profile, WindowContent
from skewtool.sharding import LOADS, STRATEGIES, Balance, Load, ShardMap, assess, loads_of, partition, shard_loads
from skewtool.skew.ageing import Ageing, ageing
from skewtool.skew.floor import step_floor
from skewtool.skew.frequencies import hottest_share, rank_frequency_slope
from skewtool.skew.replay import replay
from skewtool.skew.steps import consecutive_steps, drawn_steps, sample_windows

__all__ = ["BASELINES", "HIDDEN", "LayoutSkew", "Quantiles", "SkewReport", "measure_skew"]

HIDDEN = "hidden"
"""All rows on every shard, each with H / P columns: even by construction."""

Steps = npt.NDArray[np.int64]

BASELINES = ("contiguous", "strided", HIDDEN)


@dataclass(frozen=True)
class Quantiles:
    """Over steps: median, 99th percentile (linear between steps) and maximum."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> "Quantiles | None":
        """None when there are no values."""
        if not values.size:
            return None
        return cls(float(np.percentile(values, 50)), float(np.percentile(values, 99)), float(values.max()))


def _json(quantiles: Quantiles | None) -> dict[str, float] | None:
    return None if quantiles is None else dict(vars(quantiles))


@dataclass(frozen=True, eq=False)
class LayoutSkew:
    """One layout under one kind of load.

    `mean_imbalance` and `lower_bound` are busiest / mean over the whole corpus; the bound is for maps of equal rows.
    `step_imbalance` is busiest / mean within each step, `busiest_rows_per_token` what the busiest shard serves in a step
    per token of a rank, and `busiest_remote_rows_per_token` what it sends to other ranks, distinct ids only (for hidden:
    rows of H / P columns count as 1 / P). `loads` is the load per shard: float64 [P]. `steps`: imbalance of each step,
    float64 [steps].

    Requests of a rank to its own shard count; lookups of ids on every shard are no requests.
    """

    layout: str
    load: Load
    mean_imbalance: float
    lower_bound: float
    step_imbalance: Quantiles | None
    busiest_rows_per_token: Quantiles | None
    busiest_remote_rows_per_token: Quantiles | None
    extra_rows_per_shard: int
    loads: npt.NDArray[np.float64]
    steps: npt.NDArray[np.float64]

    def to_json(self) -> dict[str, Any]:
        """The documented keys, without the arrays."""
        return {
            "layout": self.layout,
            "load": self.load,
            "mean_imbalance": self.mean_imbalance,
            "lower_bound": self.lower_bound,
            "step_imbalance": _json(self.step_imbalance),
            "busiest_rows_per_token": _json(self.busiest_rows_per_token),
            "busiest_remote_rows_per_token": _json(self.busiest_remote_rows_per_token),
            "extra_rows_per_shard": self.extra_rows_per_shard,
        }


@dataclass(frozen=True, eq=False)
class SkewReport:
    """All layouts under both loads, with the corpus's own skew. `num_steps` is how many steps were replayed; `step_floor`
    is the step imbalance of unique load that chance alone gives a perfect map without copies: median and 99th percentile
    over all steps there could be, while those of few replayed steps scatter around them. `over_corpus`: loads of the
    layouts in each block of the profile's time line, None when it has none."""

    num_shards: int
    tokens_per_rank: int
    num_steps: int
    top1_percent_share: float
    top10_share: float
    rank_frequency_slope: float | None
    step_floor: tuple[float, float] | None
    layouts: tuple[LayoutSkew, ...]
    notes: tuple[str, ...] = ()
    over_corpus: Ageing | None = None

    def to_json(self) -> dict[str, Any]:
        """The documented keys; absent values are None, never NaN."""
        return {
            "shards": self.num_shards,
            "tokens_per_rank": self.tokens_per_rank,
            "steps": self.num_steps,
            "top1_percent_share": self.top1_percent_share,
            "top10_share": self.top10_share,
            "rank_frequency_slope": self.rank_frequency_slope,
            "step_floor": None if self.step_floor is None else dict(zip(("p50", "p99"), self.step_floor, strict=True)),
            "notes": list(self.notes),
            "over_corpus": None if self.over_corpus is None else self.over_corpus.to_json(),
            "layouts": [layout.to_json() for layout in self.layouts],
        }

    def table(self) -> pd.DataFrame:
        """One row per layout and load, for printing or further work."""
        return pd.json_normalize([layout.to_json() for layout in self.layouts])


def measure_skew(
    profile: Profile,
    maps: Mapping[str, ShardMap] | None = None,
    *,
    num_shards: int | None = None,
    against: Sequence[str] = BASELINES,
    tokens_per_rank: int | None = None,
    windows: Iterable[WindowContent] | None = None,
    shards_per_node: int | None = None,
    seed: int = 0,
) -> SkewReport:
    """Judges maps, by name, and the layouts of `against` (strategies, computed from this profile, or "hidden").

    `profile` is what is judged on, best of a corpus that the maps were not built from. Steps are replayed from
    `windows` (see `skewtool.profiling.corpus_windows`), by default from seeded draws of the profile's sample. A profile
    without windows is judged on average and by raw load only. `shards_per_node`: sources ask their own node first.

    Errors: MapError when shard counts differ or a map has no row for an id of the profile; ProfileError when the profile
    has no windows of `tokens_per_rank` tokens.
    """
    # Names may come from files; half surrogates, of bytes that are no text, are shown as \\udcXX everywhere.
    maps = {name.encode(errors="backslashreplace").decode(): each for name, each in (maps or {}).items()}
    num_shards = _common_shards(maps, num_shards)
    loads: tuple[Load, ...] = LOADS if profile.windows else ("raw",)
    if tokens_per_rank is None:
        if windows is not None and not profile.windows:
            raise ProfileError("steps of given windows need to know tokens_per_rank; the profile has counts alone")
        tokens_per_rank = profile.tokens_per_rank if profile.windows else 0
    for name, each in maps.items():
        _check_covers(name, each, profile)
    unknown = [name for name in against if name != HIDDEN and name not in STRATEGIES]
    if unknown:
        raise MapError(f"unknown layout {unknown[0]!r} to compare with; known are {', '.join([*STRATEGIES, HIDDEN])}")
    clash = [name for name in maps if name in against or name == HIDDEN]
    if clash:
        raise MapError(f"a map is called {clash[0]!r} as one of the layouts to compare with; give it another name")
    for name in against:
        if name != HIDDEN:
            maps[name] = partition(profile, num_shards, name, load=loads[0], tokens_per_rank=tokens_per_rank)
    notes: tuple[str, ...] = ()
    if windows is not None:
        steps = consecutive_steps(windows, num_shards, seed)
    elif profile.windows:
        known = len(profile.window(tokens_per_rank).sample)
        if known < num_shards:
            notes = (f"{known} sampled windows are fewer than {num_shards} ranks: windows repeat within a step",)
        steps = drawn_steps(sample_windows(profile.window(tokens_per_rank).sample), num_shards, seed)
    else:
        steps = iter(())
    replayed = replay(steps, list(maps.values()), num_shards, shards_per_node)
    by_step: dict[Load, npt.NDArray[np.int64]] = {"raw": replayed.raw, "unique": replayed.unique}
    lookups: dict[Load, npt.NDArray[np.int64]] = {"raw": replayed.tokens, "unique": replayed.distinct}
    layouts = [
        _layout(name, each, load, profile, tokens_per_rank, by_step[load][:, number], replayed.remote[:, number])
        for number, (name, each) in enumerate(maps.items())
        for load in loads
    ]
    if HIDDEN in against:
        layouts += [_hidden(load, profile, num_shards, tokens_per_rank, lookups[load]) for load in loads]
    return SkewReport(
        num_shards=num_shards,
        tokens_per_rank=tokens_per_rank,
        num_steps=replayed.raw.shape[0],
        top1_percent_share=hottest_share(profile.counts, -(-profile.vocab_size // 100)),
        top10_share=hottest_share(profile.counts, 10),
        rank_frequency_slope=rank_frequency_slope(profile.counts),
        step_floor=_floor(profile, num_shards, tokens_per_rank, replayed.raw.shape[0]),
        layouts=tuple(layouts),
        notes=notes,
        over_corpus=ageing(profile, maps, tokens_per_rank or None),
    )


def _floor(profile: Profile, num_shards: int, tokens_per_rank: int, num_steps: int) -> tuple[float, float] | None:
    if not profile.windows or not num_steps:
        return None
    windows = profile.window(tokens_per_rank)
    median, high = (step_floor(windows, num_shards, quantile) for quantile in (0.5, 0.99))
    return None if median is None or high is None else (median, high)


def _common_shards(maps: Mapping[str, ShardMap], num_shards: int | None) -> int:
    for name, each in maps.items():
        if num_shards is not None and each.num_shards != num_shards:
            raise MapError(f"map {name} has {each.num_shards} shards, expected {num_shards}; compare maps of one size")
        num_shards = each.num_shards
    if num_shards is None or num_shards < 1:
        raise MapError("the number of shards is not known: give a map or --shards")
    return num_shards


def _check_covers(name: str, shard_map: ShardMap, profile: Profile) -> None:
    beyond = profile.counts[shard_map.vocab_size :]
    if beyond.any():
        token = shard_map.vocab_size + int(np.argmax(beyond > 0))
        raise MapError(
            f"map {name} has rows for {shard_map.vocab_size} ids, but the corpus holds id {token}; is it of another "
            "tokenizer?"
        )


def _layout(
    name: str, shard_map: ShardMap, load: Load, profile: Profile, tokens_per_rank: int, steps: Steps, remote: Steps
) -> LayoutSkew:
    loads = np.zeros(shard_map.vocab_size, np.int64)
    given = loads_of(profile, load, tokens_per_rank)[: loads.size]
    loads[: given.size] = given
    balance = assess(loads, shard_map)
    per_shard = shard_loads(loads, shard_map)
    if shard_map.has_copies and len(steps):
        # Which copy serves a lookup is decided step by step, so the average is that of the steps.
        per_shard = steps.sum(axis=0).astype(np.float64)
        balance = Balance.of(per_shard, bound=0)
    busiest, mean = steps.max(axis=1), steps.mean(axis=1)
    imbalance = np.divide(busiest, mean, out=np.ones(mean.size), where=mean > 0)
    return LayoutSkew(
        layout=name,
        load=load,
        mean_imbalance=balance.imbalance,
        lower_bound=balance.lower_bound,
        step_imbalance=Quantiles.of(imbalance),
        busiest_rows_per_token=Quantiles.of(busiest / tokens_per_rank),
        busiest_remote_rows_per_token=Quantiles.of(remote.max(axis=1) / tokens_per_rank) if load == "unique" else None,
        extra_rows_per_shard=shard_map.num_slots - shard_map.home_slots,
        loads=per_shard,
        steps=imbalance,
    )


def _hidden(load: Load, profile: Profile, num_shards: int, tokens_per_rank: int, lookups: Steps) -> LayoutSkew:
    """Every shard looks up every row, H / P columns of it; lookups int64 [steps] are those of a whole step."""
    total = int(loads_of(profile, load, tokens_per_rank).sum())
    rows = lookups / num_shards / tokens_per_rank
    return LayoutSkew(
        layout=HIDDEN,
        load=load,
        mean_imbalance=1.0,
        lower_bound=1.0,
        step_imbalance=Quantiles.of(np.ones(lookups.size)),
        busiest_rows_per_token=Quantiles.of(rows),
        busiest_remote_rows_per_token=Quantiles.of(rows * (num_shards - 1) / num_shards) if load == "unique" else None,
        extra_rows_per_shard=0,
        loads=np.full(num_shards, total / num_shards),
        steps=np.ones(lookups.size),
    )
