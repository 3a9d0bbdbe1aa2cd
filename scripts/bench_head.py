"""Time and peak memory of the loss of a vocabulary-parallel head, forward and backward, beside others, in one run.

    skewtool linear_cross_entropy     chunks of tokens, never all logits
    skewtool vocab_parallel           this rank's logits, then vocab_parallel_cross_entropy
    megatron-core                     this rank's logits, then megatron-core's vocab_parallel_cross_entropy
    torch loss_parallel               this rank's logits as a DTensor, then F.cross_entropy
    F.cross_entropy, all logits       this rank's logits gathered from all ranks, then F.cross_entropy

All get the same hidden states, weight rows and labels, and must give the same loss and the same gradients. Ranks are
processes of this machine on gloo, one thread each. Memory is the peak of the resident set above what it was before, in
the busiest rank, gradients of weight and hidden states included. Times are medians over interleaved repeats.
"""

import argparse
import datetime
import json
import os
import socket
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.nn import functional as F

from skewtool.parallel import linear_cross_entropy, vocab_parallel_cross_entropy
from skewtool.parallel.differentiable import gather_parts, replicated
from skewtool.sharding import ShardMap

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def own_logits(hidden: Tensor, weight: Tensor) -> Tensor:
    return F.linear(replicated(hidden, None), weight)


def competitors(vocab: int, world: int) -> dict[str, Loss]:
    """(hidden [N, H], weight [R, H], labels [N]) -> mean loss."""
    shard_map = ShardMap.contiguous(vocab, world)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it names other packages that would make it faster on a GPU
        from megatron.core import parallel_state
        from megatron.core.tensor_parallel import vocab_parallel_cross_entropy as megatron_cross_entropy
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
    mesh = init_device_mesh("cpu", (world,))

    def megatron(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        losses: Tensor = megatron_cross_entropy(own_logits(hidden, weight)[:, None], labels[:, None])
        return losses.mean()

    def all_logits(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        parts = gather_parts(own_logits(hidden, weight), None, "logits", same_use=True)
        return F.cross_entropy(parts.movedim(0, 1).reshape(hidden.size(0), -1)[:, :vocab], labels)

    def in_loss_parallel(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        with loss_parallel():  # backward must run inside, too
            logits = DTensor.from_local(own_logits(hidden, weight), mesh, [Shard(1)], run_check=False)
            loss: Any = F.cross_entropy(logits, DTensor.from_local(labels, mesh, [Replicate()], run_check=False))
            loss.backward()
        loss = loss.detach()
        value: Tensor = loss.to_local() if isinstance(loss, DTensor) else loss
        return value

    return {
        "skewtool linear_cross_entropy": lambda h, w, y: linear_cross_entropy(h, w, y, shard_map),
        "skewtool vocab_parallel": lambda h, w, y: vocab_parallel_cross_entropy(own_logits(h, w), y, shard_map),
        "megatron-core": megatron,
        "torch loss_parallel": in_loss_parallel,
        "F.cross_entropy, all logits": all_logits,
    }


def peak_bytes() -> int:
    return int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line).split()[1]) << 10


def reset_peak() -> int:
    """Forgets the peak; returns what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def measure(loss: Loss, hidden: Tensor, weight: Tensor, labels: Tensor) -> dict[str, Any]:
    hidden, weight = hidden.clone().requires_grad_(), weight.detach().requires_grad_()
    dist.barrier()
    before, start = reset_peak(), time.perf_counter()
    value = loss(hidden, weight, labels)
    if value.requires_grad:
        value.backward()  # type: ignore[no-untyped-call]
    seconds, peak = time.perf_counter() - start, peak_bytes() - before
    assert hidden.grad is not None
    assert weight.grad is not None
    figures = torch.tensor([seconds, float(peak)], dtype=torch.float64)
    dist.all_reduce(figures, dist.ReduceOp.MAX)
    gradients = [float(hidden.grad.double().norm()), float(weight.grad.double().norm())]
    return {"seconds": float(figures[0]), "bytes": int(figures[1]), "loss": float(value), "gradients": gradients}


def run(rank: int, world: int, port: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(minutes=10))
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, options.dtype)
    hidden = torch.randn(options.tokens, options.hidden, generator=generator).to(dtype)
    labels = torch.randint(0, options.vocab, (options.tokens,), generator=generator)
    rows = -(-options.vocab // world)
    assert options.vocab == rows * world, "the others know only equal shards: --vocab must be a multiple of --ranks"
    weight = (torch.randn(rows, options.hidden, generator=generator.manual_seed(rank + 1)) / 16).to(dtype)
    losses = competitors(options.vocab, world)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in losses}
    for repeat in range(options.repeats + 1):
        for name, loss in losses.items():
            result = measure(loss, hidden, weight, labels)
            if repeat:  # the first is to warm up
                found[name].append(result)
    if rank == 0:
        report(found, options)
    dist.destroy_process_group()


def report(found: dict[str, list[dict[str, Any]]], options: argparse.Namespace) -> None:
    rows = []
    for name, results in found.items():
        seconds = sorted(result["seconds"] for result in results)
        rows.append(
            {
                "loss": name,
                "seconds": {"p50": statistics.median(seconds), "min": seconds[0], "max": seconds[-1]},
                "peak_bytes": max(result["bytes"] for result in results),
                "value": results[0]["loss"],
                "gradient_norms": results[0]["gradients"],
            }
        )
    megatron = next(row for row in rows if row["loss"] == "megatron-core")
    for row in rows:
        row["time_ratio"] = row["seconds"]["p50"] / megatron["seconds"]["p50"]
        row["memory_ratio"] = row["peak_bytes"] / megatron["peak_bytes"]
    if options.json:
        print(json.dumps(vars(options) | {"losses": rows}, indent=2))
        return
    print(
        f"{options.tokens:,} tokens, V = {options.vocab:,}, H = {options.hidden}, {options.ranks} ranks, {options.dtype}; "
        f"forward and backward, median of {options.repeats}; ratios to megatron-core"
    )
    print(f"{'':>30}{'seconds':>9}{'ratio':>8}{'peak MiB':>10}{'ratio':>8}{'loss':>12}{'|dH|':>12}{'|dW|':>12}")
    for row in rows:
        hidden, weight = row["gradient_norms"]
        print(
            f"{row['loss']:>30}{row['seconds']['p50']:9.2f}{row['time_ratio']:8.2f}{row['peak_bytes'] / 2**20:10.0f}"
            f"{row['memory_ratio']:8.2f}{row['value']:12.6f}{hidden:12.4e}{weight:12.4e}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocab", type=int, default=128_256)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    mp.spawn(run, (options.ranks, free_port(), options), nprocs=options.ranks)  # type: ignore[no-untyped-call,attr-defined]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
