"""Embeddings of other packages, for the layouts that they have: torch's DTensor, and megatron-core where it is installed.

They move bytes past `skewtool.parallel.collectives`, so these are not counted.
"""

import importlib.util
import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from skewtool.bench.table import fill_slots
from skewtool.sharding import ShardMap

if TYPE_CHECKING:
    from skewtool.bench.layouts import Builder, Built, Place

__all__ = ["PEERS", "available_peers"]


def _own_rows(place: "Place", rows: int) -> Tensor:
    """This rank's contiguous rows of the table that all layouts have, zeros behind."""
    job = place.job
    weight = torch.zeros(rows, job.hidden, device=place.device, dtype=job.torch_dtype)
    shard_map = ShardMap.contiguous(job.vocab_size, job.shards)
    fill_slots(weight[: shard_map.home_slots], shard_map, place.rank)
    return weight


def _dtensor(scattered: bool) -> "Builder":
    def make(place: "Place") -> "Built":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard

        from skewtool.bench.layouts import Built

        job = place.job
        mesh = init_device_mesh(place.device.type, (job.shards,))
        rows = -(-job.vocab_size // job.shards)
        local = _own_rows(place, rows)[: max(0, min(rows, job.vocab_size - place.rank * rows))]
        table = DTensor.from_local(
            local, mesh, [Shard(0)], run_check=False, shape=torch.Size((job.vocab_size, job.hidden)), stride=(job.hidden, 1)
        )
        module = torch.nn.Embedding(1, 1, device="meta")
        module.weight = torch.nn.Parameter(table)

        def forward(ids: Tensor) -> Tensor:
            every = DTensor.from_local(ids.reshape(-1), mesh, [Replicate()], run_check=False)
            found = module(every).redistribute(placements=[Shard(0) if scattered else Replicate()])
            rows: Tensor = found.to_local()
            return rows

        return Built(module, forward, "own" if scattered else "all")

    return make


def _megatron(scattered: bool) -> "Builder":
    def make(place: "Place") -> "Built":
        from skewtool.bench.layouts import Built

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it names further packages for GPUs
            from megatron.core import parallel_state
            from megatron.core.model_parallel_config import ModelParallelConfig
            from megatron.core.tensor_parallel import VocabParallelEmbedding

        job = place.job
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel(tensor_model_parallel_size=job.shards)
        padded = -(-job.vocab_size // job.shards) * job.shards  # it knows only equal shards
        config = ModelParallelConfig(
            tensor_model_parallel_size=job.shards, use_cpu_initialization=place.device.type == "cpu",
            perform_initialization=False, params_dtype=job.torch_dtype, sequence_parallel=scattered,
        )  # fmt: skip
        module = VocabParallelEmbedding(
            padded, job.hidden, init_method=torch.nn.init.zeros_, config=config, reduce_scatter_embeddings=scattered
        )
        module.weight.data.copy_(_own_rows(place, padded // job.shards))

        def forward(ids: Tensor) -> Tensor:
            found: Tensor = module(ids.reshape(1, -1))  # [1, N, H], or scattered [n, 1, H]
            return found.reshape(-1, job.hidden)

        return Built(module, forward, "own" if scattered else "all")

    return make


PEERS: "dict[str, Builder]" = {
    "DTensor all-reduce": _dtensor(scattered=False),
    "DTensor reduce-scatter": _dtensor(scattered=True),
    "megatron-core all-reduce": _megatron(scattered=False),
    "megatron-core reduce-scatter": _megatron(scattered=True),
}


def available_peers() -> tuple[str, ...]:
    """Those that can run here: megatron-core's must be installed, and its reduce-scatter makes its buffers on a GPU."""
    missing = {name for name in PEERS if name.startswith("megatron") and importlib.util.find_spec("megatron") is None}
    if not torch.cuda.is_available():
        missing.add("megatron-core reduce-scatter")
    return tuple(name for name in PEERS if name not in missing)
