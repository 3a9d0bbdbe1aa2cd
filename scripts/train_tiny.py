"""Trains a small GPT with a tied, sharded embedding and head, and shows that no map changes what it learns.

The same model, the same batches, the same Adam steps: unsharded (torch's own embedding, linear layer, cross-entropy), and
on several ranks under contiguous, strided and balanced maps and one with copies. Batches are split over the ranks, the
table over the same ranks; the body is replicated. Then a run at P = 4 is saved half way, resumed at P = 2 under another
map, and goes on with the same losses. Prints the largest differences, exits with 1 where one exceeds the tolerance, and
writes a plot of the curves and of the load per rank, step by step.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn import functional as F

import skewtool
from skewtool.bench.launch import free_port
from skewtool.parallel import (
    Route,
    RoutedEmbedding,
    VocabParallelLMHead,
    clip_grad_norm_,
    from_checkpoint,
    initial_rows,
    to_checkpoint,
)
from skewtool.sharding import ShardMap

SEED, WIDTH, HEADS, LAYERS, LENGTH, SEQUENCES = 1, 64, 2, 2, 32, 8
LEARNING_RATE, WARM_UP, MOST_NORM = 1e-3, 20, 1.0
"""As training runs have them: without warm-up, on text in its order, the loss jumps by spikes, and after a hundred steps two
runs of the same code differ visibly when a sum is added in another order."""
TOLERANCE = {"float64": 1e-9, "float32": 2e-2}
"""Of the loss, over all steps. In float32 the order of sums differs, and training multiplies the difference."""


@dataclass(frozen=True)
class Plan:
    """What a run does: which ranks, map, batches; where it resumes from and what it saves."""

    world: int
    shard_map: ShardMap | None
    batches: Tensor
    dtype: str
    first: int = 0
    stop: int = 0
    load: Path | None = None
    save: Path | None = None


class Block(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH, dtype=dtype), nn.LayerNorm(WIDTH, dtype=dtype)
        self.attend, self.join = nn.Linear(WIDTH, 3 * WIDTH, dtype=dtype), nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, dtype=dtype), nn.Linear(4 * WIDTH, WIDTH, dtype=dtype)

    def forward(self, states: Tensor) -> Tensor:
        batch, length, _ = states.shape
        parts = self.attend(self.first(states)).reshape(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.join(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        result: Tensor = states + self.down(F.gelu(self.up(self.second(states))))
        return result


class Body(nn.Module):
    """All between embedding and head."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH, dtype=dtype) * 0.02)
        self.blocks = nn.ModuleList(Block(dtype) for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH, dtype=dtype)

    def forward(self, rows: Tensor) -> Tensor:
        states = rows + self.positions
        for block in self.blocks:
            states = block(states)
        normed: Tensor = self.last(states)
        return normed


class Unsharded(nn.Module):
    """The reference: plain torch, one process."""

    def __init__(self, vocab_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.body = Body(dtype)
        table = initial_rows(torch.arange(vocab_size), 0, WIDTH, seed=SEED).to(dtype)
        self.embedding = nn.Embedding(vocab_size, WIDTH, _weight=table)

    def loss(self, ids: Tensor) -> Tensor:
        states = self.body(self.embedding(ids[:, :-1]))
        return F.cross_entropy(F.linear(states, self.embedding.weight).flatten(0, 1), ids[:, 1:].flatten())

    def synchronize(self) -> None:
        pass

    def clip(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters(), MOST_NORM)


class Sharded(nn.Module):
    """The same on the ranks of the default group: each has its own sequences, and a part of the one table."""

    def __init__(self, shard_map: ShardMap, dtype: torch.dtype) -> None:
        super().__init__()
        self.body = Body(dtype)
        self.embedding = RoutedEmbedding(shard_map.vocab_size, WIDTH, shard_map, dtype=dtype)
        self.embedding.reset_parameters(SEED)
        self.head = VocabParallelLMHead(shard_map.vocab_size, WIDTH, tied_to=self.embedding)
        self.served: list[int] = []

    def loss(self, ids: Tensor) -> Tensor:
        own = ids.chunk(dist.get_world_size())[dist.get_rank()]
        route = Route.build(own[:, :-1], self.embedding.shard_map)
        self.served.append(sum(route.counts.sent))
        states = self.body(self.embedding(own[:, :-1], route))
        return self.head.loss(states, own[:, 1:], tokens="partitioned")

    def synchronize(self) -> None:
        """Each rank saw its own sequences, so the body's gradients are summed; the table's came by the routes."""
        parameters = list(self.body.parameters())
        whole = torch.cat([each.grad.flatten() for each in parameters if each.grad is not None])
        dist.all_reduce(whole)
        for each, part in zip(parameters, torch.split(whole, [each.numel() for each in parameters]), strict=True):
            each.grad = part.reshape(each.shape)
        self.embedding.synchronize_copies()

    def clip(self) -> None:
        clip_grad_norm_(self, MOST_NORM)


Model = Unsharded | Sharded


def train(model: Model, optimizer: torch.optim.Optimizer, plan: Plan) -> Iterator[float]:
    for step, ids in enumerate(plan.batches[plan.first : plan.stop], plan.first):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(1, (step + 1) / WARM_UP)
        optimizer.zero_grad()
        loss = model.loss(ids)
        loss.backward()  # type: ignore[no-untyped-call]
        model.synchronize()
        model.clip()
        optimizer.step()
        yield float(loss.detach())


def checkpoint_of(model: Sharded, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Tables and their moments in id order, of any map; the rest as it is."""
    embedding = model.embedding
    state = optimizer.state[embedding.weight]
    tables = {"weight": embedding.weight, "exp_avg": state["exp_avg"], "exp_avg_sq": state["exp_avg_sq"]}
    return {
        "tables": {name: to_checkpoint(table.detach(), embedding.shard_map) for name, table in tables.items()},
        "step": state["step"],
        "body": model.body.state_dict(),
        "moments": {name: dict(optimizer.state[each]) for name, each in model.body.named_parameters()},
    }


def resume(model: Sharded, optimizer: torch.optim.Optimizer, path: Path) -> None:
    for parameter in model.parameters():  # an optimizer that has not stepped has no state to load into
        zeros = torch.zeros_like(parameter)
        optimizer.state[parameter] = {"step": torch.zeros(()), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}
    saved = checkpoint_of(model, optimizer)
    dcp.load(saved, checkpoint_id=path)  # type: ignore[attr-defined]
    tables = {name: from_checkpoint(table, model.embedding.shard_map) for name, table in saved["tables"].items()}
    model.embedding.weight.data.copy_(tables.pop("weight"))
    optimizer.state[model.embedding.weight] = {"step": saved["step"], **tables}
    model.body.load_state_dict(saved["body"])
    for name, parameter in model.body.named_parameters():
        optimizer.state[parameter] = saved["moments"][name]


def run_rank(rank: int, plan: Plan, port: int, out: Path) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=plan.world, timeout=datetime.timedelta(minutes=5))
    assert plan.shard_map is not None
    model = Sharded(plan.shard_map, getattr(torch, plan.dtype))
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    if plan.load is not None:
        resume(model, optimizer, plan.load)
    losses = list(train(model, optimizer, plan))
    if plan.save is not None:
        dcp.save(checkpoint_of(model, optimizer), checkpoint_id=plan.save)  # type: ignore[attr-defined]
    served: list[Any] = [None] * plan.world
    dist.all_gather_object(served, model.served)
    if rank == 0:
        out.write_text(json.dumps({"losses": losses, "served": served}))
    dist.destroy_process_group()


def run(plan: Plan, vocab_size: int) -> dict[str, Any]:
    """{"losses": of each step, "served": rows that each rank's shard served, [P][steps]}"""
    if plan.shard_map is None:
        torch.set_num_threads(os.cpu_count() or 1)
        model = Unsharded(vocab_size, getattr(torch, plan.dtype))
        optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
        return {"losses": list(train(model, optimizer, plan)), "served": []}
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run.json"
        mp.spawn(run_rank, (plan, free_port(), out), nprocs=plan.world)  # type: ignore[no-untyped-call,attr-defined]
        result: dict[str, Any] = json.loads(out.read_text())
        return result


def read_batches(corpus: skewtool.Corpus, steps: int) -> Tensor:
    """int64 [steps, SEQUENCES, LENGTH + 1], from all over the corpus."""
    ids = torch.from_numpy(np.concatenate([block.astype(np.int64) for block in corpus.blocks()]))
    sequences = ids[: ids.numel() // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    if len(sequences) < steps * SEQUENCES:
        sys.exit(f"train_tiny: {steps} steps need {steps * SEQUENCES} sequences, the corpus has {len(sequences)}")
    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(SEED))
    return sequences[order[: steps * SEQUENCES]].reshape(steps, SEQUENCES, LENGTH + 1)


def draw(runs: dict[str, dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained", dpi=120)
    curves, loads = figure.subplots(1, 2)
    for number, (name, result) in enumerate(runs.items()):
        first = result.get("first", 0)
        steps = range(first, first + len(result["losses"]))
        if number == 0:
            curves.plot(steps, result["losses"], label=name, color="black", linewidth=4, alpha=0.3)
        else:  # dashes that take turns, since the curves lie on one another
            curves.plot(
                steps, result["losses"], label=name, color=f"C{number}", linewidth=1.2, linestyle=(number * 3, (3, 12))
            )
        if result["served"]:
            served = np.array(result["served"], float)
            imbalance = served.max(axis=0) / np.maximum(served.mean(axis=0), 1e-9)
            loads.plot(steps, imbalance, label=f"{name}, median {np.median(imbalance):.3f}", linewidth=1, color=f"C{number}")
    curves.set(xlabel="step", ylabel="loss", title="Loss: all curves are one")
    loads.set(xlabel="step", ylabel="busiest rank / mean", title="Rows served per step (unique)", ylim=(0.95, None))
    for axes in (curves, loads):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path("demo-out/train.idx"), help="made where it is the default")
    parser.add_argument("--vocab-size", type=int, default=16_384)
    parser.add_argument("--dtype", choices=tuple(TOLERANCE), default="float64")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--plot", type=Path, default=Path("demo-out/train-tiny.png"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    corpus = skewtool.open_corpus(options.corpus)
    batches = read_batches(corpus, options.steps)
    profile = skewtool.profile(corpus, vocab_size=options.vocab_size, windows=(SEQUENCES * LENGTH // options.ranks,))
    maps = {name: skewtool.partition(profile, options.ranks, name) for name in ("contiguous", "strided", "balanced")}
    maps["copies"] = skewtool.partition(profile, options.ranks, extra_rows="10%")

    def plan(world: int, shard_map: ShardMap | None, **more: Any) -> Plan:
        return Plan(world, shard_map, batches, options.dtype, **({"stop": options.steps} | more))

    runs = {"unsharded": run(plan(1, None), options.vocab_size)}
    for name, shard_map in maps.items():
        print(f"{name}: {options.ranks} ranks, {options.steps} steps", file=sys.stderr)
        runs[name] = run(plan(options.ranks, shard_map), options.vocab_size)
    half = options.steps // 2
    with tempfile.TemporaryDirectory() as directory:
        print(f"saved after {half} steps on {options.ranks} ranks, resumed on 2", file=sys.stderr)
        run(plan(options.ranks, maps["copies"], stop=half, save=Path(directory)), options.vocab_size)
        other = skewtool.partition(profile, 2, "strided")
        resumed = run(plan(2, other, first=half, load=Path(directory)), options.vocab_size)
    runs["resumed, P = 2, strided"] = resumed | {"first": half}
    draw(runs, options.plot)
    finish(runs, options)


def finish(runs: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    reference = runs["unsharded"]["losses"]
    differences = {
        name: float(np.abs(np.subtract(result["losses"], reference[result.get("first", 0) :])).max())
        for name, result in runs.items()
        if name != "unsharded"
    }
    tolerance = TOLERANCE[options.dtype]
    if options.json:
        found = {"steps": options.steps, "dtype": options.dtype, "tolerance": tolerance, "first_loss": reference[0]}
        print(json.dumps(found | {"last_loss": reference[-1], "largest_difference": differences}))
    else:
        print(f"unsharded: loss {reference[0]:.4f} -> {reference[-1]:.4f} in {options.steps} steps, {options.dtype}")
        for name, difference in differences.items():
            print(f"{name:>24}: largest difference of the loss {difference:.1e}")
        print(f"plot: {options.plot}")
    if max(differences.values()) > tolerance:
        sys.exit(f"train_tiny: a loss differs by more than {tolerance:g}")


if __name__ == "__main__":
    main()
