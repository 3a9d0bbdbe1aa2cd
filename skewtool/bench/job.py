"""`Job`: all that the ranks of a bench must know, in one directory: options, batches, maps."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from skewtool.corpus import Corpus
from skewtool.errors import BenchError
from skewtool.sharding import ShardMap

__all__ = ["SEEN", "Job", "read_batches"]

SEEN = "seen.json"
"""Where rank 0 leaves what all ranks saw."""

_OPTIONS, _BATCHES = "job.json", "batches.npy"


@dataclass(frozen=True)
class Job:
    """What is measured.

    layouts           names in `skewtool.bench.layouts.LAYOUTS`, or of `maps`
    maps              name -> file beside the options; each is a routed layout
    tokens_per_rank   n, of an embedding step
    head_tokens       tokens per rank of an LM-head step, whose logits for a hidden-sharded head must fit memory
    hidden, dtype     H, and a torch floating dtype by name
    backend           gloo or nccl
    """

    shards: int
    vocab_size: int
    hidden: int
    dtype: str
    tokens_per_rank: int
    head_tokens: int
    layouts: tuple[str, ...]
    maps: dict[str, str]
    backend: Literal["gloo", "nccl"] = "gloo"
    seed: int = 0

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def bytes_per_element(self) -> int:
        return self.torch_dtype.itemsize

    def save(self, directory: Path, batches: npt.NDArray[np.int64], maps: dict[str, ShardMap]) -> None:
        """Writes options, batches int64 [steps, P, n] and maps for `load`, by ranks that need not be on this machine."""
        for name, file in self.maps.items():
            maps[name].save(directory / file)
        np.save(directory / _BATCHES, batches)
        (directory / _OPTIONS).write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(directory: Path) -> "tuple[Job, torch.Tensor, dict[str, ShardMap]]":
        """The job, its batches and its maps."""
        options: dict[str, Any] = json.loads((directory / _OPTIONS).read_text())
        job = Job(**options | {"layouts": tuple(options["layouts"])})
        batches = torch.from_numpy(np.load(directory / _BATCHES))
        return job, batches, {name: ShardMap.load(directory / file) for name, file in job.maps.items()}


def read_batches(corpus: Corpus, num_steps: int, num_ranks: int, tokens_per_rank: int) -> npt.NDArray[np.int64]:
    """The first steps of a corpus, int64 [steps, P, n]: consecutive tokens, rank by rank, as a data loader deals them.

    Errors: BenchError when the corpus has not enough tokens for one step.
    """
    needed = num_steps * num_ranks * tokens_per_rank
    ids = np.concatenate([np.empty(0, np.int64), *_first(corpus, needed)])
    steps = ids.size // (num_ranks * tokens_per_rank)
    if not steps:
        raise BenchError(
            f"one step of {num_ranks} ranks needs {num_ranks * tokens_per_rank:,} tokens, the corpus has {ids.size:,}; "
            "give more, or fewer --tokens-per-rank"
        )
    return ids[: steps * num_ranks * tokens_per_rank].reshape(steps, num_ranks, tokens_per_rank)


def _first(corpus: Corpus, number: int) -> Iterator[npt.NDArray[np.int64]]:
    for block in corpus.blocks():
        yield block[:number].astype(np.int64)
        number -= block.size
        if number <= 0:
            return
