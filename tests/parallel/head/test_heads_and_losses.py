"""Both LM heads and both losses equal `F.linear` and `F.cross_entropy`: logits, loss, and the gradients of hidden states,
table and bias, under every map and option."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch

from skewtool.parallel.head import HiddenParallelLMHead, VocabParallelLMHead, vocab_parallel_cross_entropy
from skewtool.parallel.home_rows import home_rows_of
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, rms, sum_by_id
from tests.parallel.head.unsharded import OPTIONS, Options, Problem, Solution, logits_of, loss_of, solve
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH, TOKENS = 7, 23
REDUCTIONS = ("mean", "sum", "none")

SHARES = {1: (23,), 2: (5, 18), 3: (0, 5, 18), 4: (0, 5, 0, 18), 8: (0, 5, 0, 3, 0, 0, 15, 0)}
"""Tokens of each rank where they are partitioned: uneven, and none on some."""


def _share(rank: int, world: int) -> slice:
    first = sum(SHARES[world][:rank])
    return slice(first, first + SHARES[world][rank])


def _head(problem: Problem, shard_map: ShardMap, options: Options) -> VocabParallelLMHead:
    head = VocabParallelLMHead(problem.vocab, problem.width, shard_map, dtype=problem.table.dtype, **options.head)
    head.load_table(problem.table, problem.bias)
    return head


def _check_parameters(head: VocabParallelLMHead, solution: Solution, shard_map: ShardMap, what: str) -> None:
    assert_equal(sum_by_id(head.weight.grad, shard_map), solution.table, f"gradient of the weight, {what}")
    if head.bias is not None:
        assert_equal(sum_by_id(head.bias.grad, shard_map), solution.bias, f"gradient of the bias, {what}")


def _logits_and_their_loss(problem: Problem, shard_map: ShardMap, options: Options, reduction: Any, what: str) -> None:
    solution = solve(problem, options, reduction)
    head = _head(problem, shard_map, options)
    hidden = problem.hidden.clone().requires_grad_()
    logits = head(hidden)
    home = home_rows_of(shard_map, None, logits.device)
    whole = logits_of(problem.hidden, problem.table, problem.bias, options)
    assert_equal(logits.detach()[:, home.is_class], whole[:, home.ids[home.is_class]], f"logits, {what}")
    assert (logits[:, home.no_class] == -torch.inf).all(), "padding ids and empty slots"
    before = logits.detach().clone()
    loss = vocab_parallel_cross_entropy(logits, problem.labels, shard_map, reduction=reduction, **options.loss)
    assert_equal(loss.detach(), solution.loss, f"loss, {what}")
    backward(loss, problem.upstream(reduction))
    assert torch.equal(logits, before), "logits were overwritten"
    assert_equal(hidden.grad, solution.hidden, f"gradient of hidden states, {what}")
    _check_parameters(head, solution, shard_map, what)


def _from_hidden_states(
    problem: Problem, shard_map: ShardMap, options: Options, reduction: Any, chunk: int | None, tokens: slice, what: str
) -> None:
    """`linear_cross_entropy`: all tokens on every rank, or, where `tokens` is a part of them, partitioned."""
    solution = solve(problem, options, reduction)
    head = _head(problem, shard_map, options)
    split = tokens != slice(None)
    hidden = problem.hidden[tokens].clone().requires_grad_()
    loss = head.loss(
        hidden, problem.labels[tokens], reduction=reduction, tokens_per_chunk=chunk,
        tokens="partitioned" if split else "replicated", **options.loss,
    )  # fmt: skip
    per_token = reduction == "none"
    assert_equal(loss.detach(), solution.loss[tokens] if per_token else solution.loss, f"loss, {what}")
    backward(loss, problem.upstream(reduction)[tokens] if per_token else problem.upstream(reduction))
    assert_equal(hidden.grad, solution.hidden[tokens], f"gradient of hidden states, {what}")
    _check_parameters(head, solution, shard_map, what)


def _partitioned_logits(problem: Problem, shard_map: ShardMap, options: Options, tokens: slice, what: str) -> None:
    """The head gathers the tokens, then the loss of all of them."""
    solution = solve(problem, options, "mean")
    head = _head(problem, shard_map, options)
    hidden = problem.hidden[tokens].clone().requires_grad_()
    logits = head(hidden, tokens="partitioned")
    loss = vocab_parallel_cross_entropy(logits, problem.labels, shard_map, **options.loss)
    assert_equal(loss.detach(), solution.loss, f"loss, {what}")
    backward(loss, problem.upstream("mean"))
    assert_equal(hidden.grad, solution.hidden[tokens], f"gradient of hidden states, {what}")
    _check_parameters(head, solution, shard_map, what)


def _vocab_parallel(rank: int, world: int, maps: dict[str, ShardMap], maps_of_three: dict[str, ShardMap]) -> None:
    share = _share(rank, world)
    for each, (vocab, real_vocab), all_options in (
        (maps, (VOCAB, REAL_VOCAB), OPTIONS),
        (maps_of_three, (3, 2), OPTIONS[-1:]),
    ):
        problem = Problem.of(vocab, real_vocab, WIDTH, TOKENS)
        for row, (name, shard_map) in enumerate(each.items()):
            for column, options in enumerate(all_options):
                if world > 2 and (row + column + world) % 2:
                    continue  # the other half on one rank more or less
                reduction = REDUCTIONS[(row + column) % 3]  # each with each option, over the maps
                chunk = (None, 9, 1 if row + column == 1 else 5)[(row + 2 * column) % 3]
                what = f"{name}, {vocab} ids, {options}, {reduction}, chunks of {chunk}"
                _logits_and_their_loss(problem, shard_map, options, reduction, what)
                _from_hidden_states(problem, shard_map, options, reduction, chunk, slice(None), what)
                _from_hidden_states(problem, shard_map, options, reduction, chunk, share, f"partitioned, {what}")
            _partitioned_logits(problem, shard_map, all_options[row % len(all_options)], share, f"gathered, {name}")


@pytest.mark.parametrize("world", [1, 2, 3, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_vocab_parallel(on_ranks: Ranks, world: int) -> None:
    """Also with fewer classes than shards, so that some have none."""
    on_ranks(world, _vocab_parallel, maps_of(world), maps_of(world, 3, 2))


def _hidden_parallel_head(
    problem: Problem, shard_map: ShardMap, options: Options, output: Any, states: Literal["hidden", "replicated"]
) -> None:
    what = f"{output} of {states} states, {options}"
    kind = {"dtype": torch.float64, **options.head}
    head = HiddenParallelLMHead(problem.vocab, problem.width, shard_map, output=output, **kind)
    head.load_table(problem.table, problem.bias)
    columns = slice(head.columns.start, head.columns.stop)
    own = columns if states == "hidden" else slice(None)
    solution = solve(problem, options, "mean")
    hidden = problem.hidden[:, own].clone().requires_grad_()
    logits = head(hidden, states)
    if output == "vocab":
        loss = vocab_parallel_cross_entropy(logits, problem.labels, shard_map, **options.loss)
    else:
        assert (logits[:, problem.real_vocab :] == -torch.inf).all()
        loss = loss_of(logits[:, : problem.real_vocab], problem.labels, "mean", **options.loss)
    assert_equal(loss.detach(), solution.loss, f"loss, {what}")
    backward(loss, problem.upstream("mean"))
    assert_equal(hidden.grad, solution.hidden[:, own], f"gradient of hidden states, {what}")
    assert_equal(head.weight.grad, solution.table[:, columns], f"gradient of the weight, {what}")
    if head.bias is not None:
        assert_equal(head.bias.grad, solution.bias, f"gradient of the bias, {what}")


def _hidden_parallel(rank: int, world: int, maps: dict[str, ShardMap], maps_of_three: dict[str, ShardMap]) -> None:
    cases: list[tuple[dict[str, ShardMap], Problem]] = [
        (maps, Problem.of(VOCAB, REAL_VOCAB, WIDTH, TOKENS)),
        (maps_of_three, Problem.of(3, 2, 2, TOKENS)),  # 2 columns
    ]
    for each, problem in cases:
        for row, shard_map in enumerate(each.values()):
            options = OPTIONS[row % len(OPTIONS)]
            for output in ("replicated", "vocab"):
                _hidden_parallel_head(problem, shard_map, options, output, "hidden")
                _hidden_parallel_head(problem, shard_map, options, output, "replicated")


@pytest.mark.parametrize("world", [1, 2, 3, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_hidden_parallel(on_ranks: Ranks, world: int) -> None:
    """Also with fewer columns than ranks, so that some have none."""
    on_ranks(world, _hidden_parallel, maps_of(world), maps_of(world, 3, 2))


def _as_exact_as_unsharded(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    for dtype, allowance in ((torch.float32, 1.25), (torch.bfloat16, 1.0)):
        problem = Problem.of(VOCAB, REAL_VOCAB, 32, 256, dtype)
        share = slice(rank * 256 // world, (rank + 1) * 256 // world)
        for row, options in enumerate(OPTIONS):
            exact, theirs = solve(problem.double(), options, "none"), solve(problem, options, "none")
            shard_map = maps[("balanced", "copies")[row % 2]]
            for fused in (False, True):
                for tokens in (slice(None), share):
                    found = _in_fewer_bits(problem, shard_map, options, tokens, fused)
                    for name in ("loss", "hidden", "table"):
                        part = slice(None) if name == "table" or (name == "loss" and not fused) else tokens
                        true, unsharded = getattr(exact, name)[part], getattr(theirs, name)[part]
                        ours, other = rms(getattr(found, name) - true), rms(unsharded - true)
                        assert ours <= allowance * other, (name, fused, tokens, dtype, options, ours / other)


def _in_fewer_bits(problem: Problem, shard_map: ShardMap, options: Options, part: slice, fused: bool) -> Solution:
    """From logits, whose losses are then those of all tokens; or `fused`, where they are those of the part."""
    head = _head(problem, shard_map, options)
    hidden = problem.hidden[part].clone().requires_grad_()
    tokens: Any = "replicated" if part == slice(None) else "partitioned"
    if fused:
        labels, upstream = problem.labels[part], problem.weight[part]
        loss = head.loss(hidden, labels, reduction="none", tokens=tokens, tokens_per_chunk=100, **options.loss)
    else:
        labels, upstream = problem.labels, problem.weight
        loss = vocab_parallel_cross_entropy(head(hidden, tokens), labels, shard_map, reduction="none", **options.loss)
    backward(loss, upstream)
    assert hidden.grad is not None
    return Solution(loss.detach(), hidden.grad, sum_by_id(head.weight.grad, shard_map), problem.bias)


@pytest.mark.parametrize("world", [2, 3])
def test_in_fewer_bits_they_are_as_exact_as_the_unsharded(on_ranks: Ranks, world: int) -> None:
    """bf16: less error in the loss, and in every gradient, because what is summed is summed in float32. float32: as many
    roundings in another order; which is better is chance, and over 256 losses the ratio of two such errors deviates from
    1 by about 6 %. Hence an allowance of a quarter."""
    on_ranks(world, _as_exact_as_unsharded, maps_of(world))
