"""What only a GPU can tell, in a few minutes: one table, and JSON with --json.

  equality    NCCL at every world size the machine allows (1, 2, ... GPUs; two ranks on one GPU where NCCL >= 2.30 permits
              it, in a process with a timeout): embeddings, losses, gradients and sampled tokens beside the unsharded
              reference
  kernels     the gather and scatter-add of each of 8 shards, for one step of a Zipfian batch, under a contiguous and a
              balanced map: what skew costs inside one GPU
  head        time and peak memory of linear_cross_entropy at V = 128,256, H = 4096 in bf16 beside full logits
  graphs      the fixed-capacity route, built and looked up inside a CUDA graph, replayed on other ids

--cpu runs all of it, but for graphs, on the CPU with gloo and small sizes: a rehearsal where there is no GPU.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

import skewtool
from skewtool.bench.launch import free_port
from skewtool.parallel import (
    FixedCapacityRoute,
    HiddenParallelEmbedding,
    RoutedEmbedding,
    VocabParallelEmbedding,
    VocabParallelLMHead,
    linear_cross_entropy,
    vocab_parallel_sample,
)
from skewtool.parallel.weights import initial_rows, unshard_weight
from skewtool.sharding import ShardMap

LLAMA3 = Path(__file__).parent.parent / "data" / "llama3.profile.safetensors"
TIMEOUT = 100
MULTI_RANK = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}


@dataclass(frozen=True)
class Sizes:
    vocab: int
    hidden: int
    tokens: int
    head_tokens: int
    shards: int = 8


SIZES = {"cuda": Sizes(128_256, 4096, 8192, 8192), "cpu": Sizes(128_256, 64, 512, 64)}


@dataclass(frozen=True)
class Line:
    """One line of the table; ok is None for what is only measured."""

    check: str
    what: str
    value: str
    ok: bool | None = None


def nccl_version() -> tuple[int, ...]:
    found: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return found


def zipf_ids(vocab: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """Ids drawn by the measured frequencies of a real corpus."""
    counts = skewtool.Profile.load(LLAMA3).counts[:vocab].astype(np.float64)
    ids = np.random.default_rng(seed).choice(counts.size, shape, p=counts / counts.sum())
    return torch.from_numpy(ids)


def maps_of(vocab: int, world: int) -> dict[str, ShardMap]:
    counts = skewtool.Profile.load(LLAMA3).counts[:vocab]
    maps = {name: skewtool.partition(counts, world, name) for name in ("contiguous", "balanced")}
    return maps | {"copies": skewtool.partition(counts, world, extra_rows=64)}


def check_equality(rank: int, world: int, device: torch.device) -> list[Line]:
    """All layouts of one world size beside the unsharded computation, on this rank."""
    vocab, hidden, tokens = 5_003, 67, 301
    table = initial_rows(torch.arange(vocab), 0, hidden, seed=3, std=1.0).to(device, torch.float32)
    batches = [zipf_ids(vocab, (tokens + other,), other).to(device) for other in range(world)]
    everyone, own = torch.cat(batches), batches[rank]
    lines = []
    for name, shard_map in maps_of(vocab, world).items():
        layouts: dict[str, tuple[Any, Tensor]] = {
            "routed": (RoutedEmbedding(vocab, hidden, shard_map, device=device), own),
            "fixed capacity": (RoutedEmbedding(vocab, hidden, shard_map, capacity=16, device=device), own),
            "vocab parallel": (VocabParallelEmbedding(vocab, hidden, shard_map, device=device), everyone),
            "hidden tokens": (HiddenParallelEmbedding(vocab, hidden, shard_map, output="tokens", device=device), own),
        }
        for layout, (module, ids) in layouts.items():
            module.load_table(table)
            rows = module(ids)
            rows.backward(torch.ones_like(rows))
            lines.append(Line("equality", f"{name}, {layout}", "rows", bool(torch.equal(rows, table[ids]))))
        routed = layouts["routed"][0]
        routed.synchronize_copies()
        whole = unshard_weight(routed.weight.grad, shard_map)
        expected = torch.zeros_like(table).index_add_(0, everyone, torch.ones(everyone.numel(), hidden, device=device))
        lines.append(Line("equality", f"{name}, gradient", "of the table", bool(torch.allclose(whole, expected))))
        lines += check_head(rank, shard_map, table, batches, device, name)
    return lines


def check_head(
    rank: int, shard_map: ShardMap, table: Tensor, batches: list[Tensor], device: torch.device, name: str
) -> list[Line]:
    vocab, hidden = table.shape
    labels = torch.cat(batches)
    generator = torch.Generator().manual_seed(5)
    states = torch.randn(labels.numel(), hidden, generator=generator).to(device)
    reference = states.clone().requires_grad_()
    expected = F.cross_entropy(F.linear(reference, table), labels)
    expected.backward()  # type: ignore[no-untyped-call]
    assert reference.grad is not None
    head = VocabParallelLMHead(vocab, hidden, shard_map, device=device)
    head.load_table(table)
    start = sum(len(batch) for batch in batches[:rank])
    own = states[start : start + len(batches[rank])].clone().requires_grad_()
    loss = head.loss(own, batches[rank], tokens="partitioned", tokens_per_chunk=97)
    loss.backward()  # type: ignore[no-untyped-call]
    assert own.grad is not None
    close = torch.allclose(own.grad, reference.grad[start : start + len(own)], atol=1e-5)
    lines = [
        Line("equality", f"{name}, loss", f"{loss.item():.6f}", bool(torch.allclose(loss, expected, rtol=1e-5))),
        Line("equality", f"{name}, loss", "gradient of hidden states", bool(close)),
    ]
    with torch.no_grad():
        settings: dict[str, Any] = {"seed": 7, "step": 3, "top_p": 0.9}
        drawn = vocab_parallel_sample(head(states[:64]), shard_map, **settings)
        alone = [dist.new_group([each]) for each in range(dist.get_world_size())][rank]
        whole = F.linear(states[:64], table)
        expected_ids = vocab_parallel_sample(whole, ShardMap.contiguous(vocab, 1), alone, **settings)
    lines.append(Line("equality", f"{name}, sampled ids", "top-p", bool(torch.equal(drawn, expected_ids))))
    return lines


def equality_rank(rank: int, world: int, port: int, kind: str, one_gpu: bool, results: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    device = torch.device("cpu")
    if kind == "cuda":
        if one_gpu:
            os.environ.update(MULTI_RANK)
        device = torch.device("cuda", 0 if one_gpu else rank)
        torch.cuda.set_device(device)
    timeout = datetime.timedelta(seconds=TIMEOUT)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", rank=rank, world_size=world, timeout=timeout)
    lines = check_equality(rank, world, device)
    if kind == "cuda":
        lines += check_graph(rank, world, device)
    results.put((rank, lines))
    dist.destroy_process_group()


def run_equality(world: int, kind: str, one_gpu: bool = False) -> list[Line]:
    """In processes of their own, with a timeout; a hang is a line of the table, not the end of the script."""
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    port = free_port()
    ranks = [
        context.Process(target=equality_rank, args=(rank, world, port, kind, one_gpu, results)) for rank in range(world)
    ]
    name = f"{world} ranks{' on one GPU' if one_gpu else ''}"
    for each in ranks:
        each.start()
    found: list[Line] = []
    try:
        deadline = time.monotonic() + TIMEOUT
        for _ in ranks:
            found += results.get(timeout=max(1.0, deadline - time.monotonic()))[1]
    except Empty:
        return [Line("equality", name, "did not end in time, or a rank failed", None if one_gpu else False)]
    finally:
        for each in ranks:
            each.join(timeout=5)
            if each.is_alive():
                each.kill()
    wrong = [line for line in found if not line.ok]
    backend = f"NCCL {'.'.join(map(str, nccl_version()))}" if kind == "cuda" else "gloo"
    return [*wrong, Line("equality", f"{name}, {backend}", f"{len(found) - len(wrong)} of {len(found)} equal", not wrong)]


def check_graph(rank: int, world: int, device: torch.device) -> list[Line]:
    """Build and lookup of the fixed-capacity route in one CUDA graph, replayed on ids that it was not captured with."""
    vocab, hidden, tokens = 5_003, 64, 512
    shard_map = maps_of(vocab, world)["copies"]
    table = initial_rows(torch.arange(vocab), 0, hidden, seed=3).to(device, torch.float32)
    module = RoutedEmbedding(vocab, hidden, shard_map, device=device)
    module.load_table(table)
    ids = zipf_ids(vocab, (tokens,), rank).to(device)

    def step() -> tuple[FixedCapacityRoute, Tensor]:
        route = FixedCapacityRoute.build(ids, shard_map, capacity=tokens)
        return route, route.lookup_what_fits(module.weight.detach())

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        route, rows = step()
    ids.copy_(zipf_ids(vocab, (tokens,), 100 + rank))
    graph.replay()
    equal = route.overflow() == 0 and torch.equal(rows, table[ids])
    start = time.perf_counter()
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    milliseconds = (time.perf_counter() - start) / 20 * 1e3
    return [Line("graphs", f"{world} ranks, rank {rank}, {tokens} ids", f"{milliseconds:.3f} ms a replay", bool(equal))]


def milliseconds_of(work: Callable[[], Any], device: torch.device, repeats: int = 10) -> float:
    work()
    seconds = []
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            seconds.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            work()
            seconds.append((time.perf_counter() - begin) * 1e3)
    return float(statistics.median(seconds))


def measure_kernels(device: torch.device, sizes: Sizes) -> list[Line]:
    """Gather and scatter-add of each shard for the raw requests of one step of `shards` ranks."""
    ids = zipf_ids(sizes.vocab, (sizes.shards * sizes.tokens,), 0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    lines = []
    for name, shard_map in maps_of(sizes.vocab, sizes.shards).items():
        if name == "copies":
            continue
        weight = torch.zeros(shard_map.num_slots, sizes.hidden, device=device, dtype=dtype)
        shard_of, slot_of = (torch.from_numpy(each.astype(np.int64)) for each in (shard_map.shard_of, shard_map.slot_of))
        times = []
        for shard in range(sizes.shards):
            slots = slot_of[ids[shard_of[ids] == shard]].to(device)

            def work(slots: Tensor = slots, weight: Tensor = weight) -> None:
                weight.index_add_(0, slots, weight.index_select(0, slots))

            times.append(milliseconds_of(work, device))
        mean = statistics.mean(times)
        value = f"busiest {max(times):.3f} ms, mean {mean:.3f} ms: {max(times) / mean:.2f}"
        lines.append(Line("kernels", f"{name}, {sizes.shards} shards, raw", value))
    return lines


def measure_head(device: torch.device, sizes: Sizes) -> list[Line]:
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(sizes.head_tokens, sizes.hidden, generator=generator).to(device, dtype).requires_grad_()
    weight = (torch.randn(sizes.vocab, sizes.hidden, generator=generator) / sizes.hidden**0.5).to(device, dtype)
    weight.requires_grad_()
    labels = zipf_ids(sizes.vocab, (sizes.head_tokens,), 0).to(device)
    shard_map = ShardMap.contiguous(sizes.vocab, 1)
    losses: dict[str, Callable[[], Tensor]] = {
        "linear_cross_entropy": lambda: linear_cross_entropy(hidden, weight, labels, shard_map),
        "F.cross_entropy of full logits": lambda: F.cross_entropy(F.linear(hidden, weight).float(), labels),
    }
    lines, values = [], []
    for name, loss in losses.items():

        def work(loss: Callable[[], Tensor] = loss) -> None:
            hidden.grad = weight.grad = None
            value = loss()
            value.backward()  # type: ignore[no-untyped-call]
            values.append(value.item())

        milliseconds = milliseconds_of(work, device, 3)
        hidden.grad = weight.grad = None
        peak = ""
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            work()
            peak = f", peak {(torch.cuda.max_memory_allocated() - before) / 2**20:,.0f} MiB"
        what = f"{name}, N = {sizes.head_tokens:,}, V = {sizes.vocab:,}, H = {sizes.hidden:,}"
        lines.append(Line("head", what, f"{milliseconds:,.1f} ms{peak}"))
    agree = abs(values[0] - values[-1]) < 1e-2
    return [*lines, Line("head", "both losses", f"{values[0]:.4f}, {values[-1]:.4f}", agree)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="a rehearsal without GPUs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        sys.exit("gpu_check: this torch sees no GPU; --cpu is a rehearsal without one")
    kind = "cpu" if options.cpu else "cuda"
    device, started = torch.device(kind), time.monotonic()
    number = 2 if options.cpu else torch.cuda.device_count()
    lines = []
    for world in range(1, number + 1):
        lines += run_equality(world, kind)
    if kind == "cuda" and number == 1:
        if nccl_version() >= (2, 30):
            lines += run_equality(2, kind, one_gpu=True)
        else:
            lines.append(Line("equality", "2 ranks on one GPU", "needs NCCL 2.30 or newer"))
    lines += measure_kernels(device, SIZES[kind]) + measure_head(device, SIZES[kind])
    if kind == "cpu":
        lines.append(Line("graphs", "fixed-capacity route", "needs a GPU"))
    name = "CPU" if kind == "cpu" else torch.cuda.get_device_name(0)
    if options.json:
        print(json.dumps({"device": name, "torch": torch.__version__, "lines": [asdict(line) for line in lines]}))
    else:
        print(f"{name}, torch {torch.__version__}, {time.monotonic() - started:.0f} s")
        for line in lines:
            mark = {True: "ok", False: "WRONG", None: ""}[line.ok]
            print(f"{line.check:>9}  {line.what:<62}  {line.value}  {mark}")
    if any(line.ok is False for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
