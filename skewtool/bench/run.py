"""`run_bench`: maps and batches from a corpus, the ranks of a job, and what they saw beside what was predicted."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from skewtool.bench.job import Job, read_batches
from skewtool.bench.launch import Host, local_hosts, run_ranks
from skewtool.bench.layouts import LAYOUTS
from skewtool.bench.peers import PEERS
from skewtool.bench.prediction import predictions_of
from skewtool.bench.rank import run_rank
from skewtool.bench.results import BenchResult, bench_result
from skewtool.corpus import Corpus
from skewtool.errors import BenchError
from skewtool.profiling import profile
from skewtool.sharding import ShardMap, partition

__all__ = ["REMAPPED", "REMAPPED_WITH_COPIES", "BenchOptions", "run_bench", "run_calibration", "usual_backend"]

REMAPPED, REMAPPED_WITH_COPIES = "remapped", "remapped with copies"

_BUILD = 0.8
"""The part of a corpus that maps are made from, where none are given; batches are from the rest."""


@dataclass(frozen=True)
class BenchOptions:
    """What to measure. `layouts`: names in `LAYOUTS` or `PEERS`, besides the maps, which always run."""

    shards: int = 4
    hidden: int = 256
    tokens_per_rank: int = 4096
    head_tokens: int = 64
    dtype: str = "float32"
    steps: int = 8
    layouts: tuple[str, ...] = tuple(LAYOUTS)
    backend: Literal["gloo", "nccl"] = "gloo"
    extra_rows: str | int = "10%"
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in self.layouts if name not in LAYOUTS | PEERS]
        if unknown:
            raise BenchError(f"there is no layout {unknown[0]!r}; there are {', '.join((*LAYOUTS, *PEERS))}")
        if self.head_tokens > self.tokens_per_rank:
            raise BenchError(f"head_tokens ({self.head_tokens}) must not exceed tokens_per_rank ({self.tokens_per_rank})")


def usual_backend(num_ranks: int) -> Literal["gloo", "nccl"]:
    """NCCL where every rank of this machine can have a GPU, else gloo."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", num_ranks))
    return "nccl" if torch.cuda.is_available() and torch.cuda.device_count() >= local else "gloo"


def made_maps(corpus: Corpus, options: BenchOptions, vocab_size: int | None) -> tuple[dict[str, ShardMap], Corpus]:
    """Maps without and with copies from the first part of a corpus; and the rest of it, for batches."""
    build = profile(corpus.part(0, _BUILD), vocab_size=vocab_size, windows=(options.tokens_per_rank,))
    maps = {
        REMAPPED: partition(build, options.shards),
        REMAPPED_WITH_COPIES: partition(build, options.shards, extra_rows=options.extra_rows),
    }
    return maps, corpus.part(_BUILD, 1)


def run_bench(
    corpus: Corpus,
    options: BenchOptions,
    maps: dict[str, ShardMap] | None = None,
    *,
    vocab_size: int | None = None,
    hosts: Sequence[Host] | None = None,
) -> BenchResult | None:
    """Measures all layouts on batches of a corpus. Without `maps` two are made from its first 80 %, and batches are from
    the rest. `hosts`: where ranks run, by default processes of this machine.

    Under torchrun (RANK is set) this process is one of the ranks; all but rank 0 return None. Every rank then makes the
    same maps, which are a function of the corpus alone.

    Errors: BenchError for what cannot be run, or with the last words of a rank that failed.
    """
    if not maps:
        maps, corpus = made_maps(corpus, options, vocab_size)
    wrong = [name for name, each in maps.items() if each.num_shards != options.shards]
    if wrong:
        raise BenchError(f"map {wrong[0]} has {maps[wrong[0]].num_shards} shards, but {options.shards} ranks run")
    batches = read_batches(corpus, options.steps, options.shards, options.tokens_per_rank)
    job = Job(
        shards=options.shards, vocab_size=next(iter(maps.values())).vocab_size, hidden=options.hidden, dtype=options.dtype,
        tokens_per_rank=options.tokens_per_rank, head_tokens=options.head_tokens, layouts=(*options.layouts, *maps),
        maps={name: f"map-{number}.safetensors" for number, name in enumerate(maps)}, backend=options.backend,
        seed=options.seed,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="skewtool-bench-") as directory:
        job.save(Path(directory), batches, maps)
        everyone = _everyone(Path(directory), options.shards, hosts)
    return None if everyone is None else bench_result(job, everyone, predictions_of(job, batches, maps))


def run_calibration(
    num_ranks: int, backend: Literal["gloo", "nccl"], hosts: Sequence[Host] | None = None
) -> dict[str, Any] | None:
    """{"backend", "ranks", "latency_seconds", "bandwidth_bytes_per_second"}; None on ranks other than 0."""
    job = Job(num_ranks, 1, 1, "float32", 1, 1, (), {}, backend)
    with tempfile.TemporaryDirectory(prefix="skewtool-bench-") as directory:
        job.save(Path(directory), torch.zeros(0, num_ranks, 1, dtype=torch.int64).numpy(), {})
        everyone = _everyone(Path(directory), num_ranks, hosts)
    return None if everyone is None else {"backend": backend, "ranks": num_ranks, **everyone[0]}


def _everyone(directory: Path, num_ranks: int, hosts: Sequence[Host] | None) -> list[Any] | None:
    if "RANK" in os.environ:
        return run_rank(directory)
    return run_ranks(directory, local_hosts(num_ranks) if hosts is None else hosts)
