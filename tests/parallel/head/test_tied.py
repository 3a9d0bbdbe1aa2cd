"""Tied weights: one parameter, whose gradient is that of lookups, copies and head together, exactly once."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from skewtool.errors import MapError
from skewtool.parallel.embedding import HiddenParallelEmbedding, RoutedEmbedding
from skewtool.parallel.head import HiddenParallelLMHead, VocabParallelLMHead, vocab_parallel_cross_entropy
from skewtool.parallel.tokens import gather_tokens
from skewtool.parallel.weights import grad_norm
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH = 4


class Routed(nn.Module):
    """Each rank its own tokens: lookup, a layer that is the same on every rank, tied head."""

    def __init__(self, shard_map: ShardMap, group: Any = None, device: str | None = None) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": torch.float64}
        self.embedding = RoutedEmbedding(shard_map.vocab_size, WIDTH, shard_map, group, **kind)
        self.body = nn.Linear(WIDTH, WIDTH, **kind)
        self.head = VocabParallelLMHead(shard_map.vocab_size, WIDTH, group=group, tied_to=self.embedding)

    def loss(self, ids: Tensor, labels: Tensor, **options: Any) -> Tensor:
        return self.head.loss(torch.tanh(self.body(self.embedding(ids))), labels, tokens="partitioned", **options)


class Hidden(nn.Module):
    """Every rank all tokens, and some columns."""

    def __init__(self, shard_map: ShardMap, group: Any = None, device: str | None = None) -> None:
        super().__init__()
        kind: dict[str, Any] = {"device": device, "dtype": torch.float64}
        vocab = shard_map.vocab_size
        self.embedding = HiddenParallelEmbedding(vocab, WIDTH, shard_map, group, **kind)
        self.head = HiddenParallelLMHead(vocab, WIDTH, shard_map, group, output="vocab", tied_to=self.embedding)

    def loss(self, ids: Tensor, labels: Tensor, **options: Any) -> Tensor:
        logits = self.head(torch.tanh(self.embedding(ids)))
        return vocab_parallel_cross_entropy(logits, labels, self.head.shard_map, self.head.group, **options)


class Whole(nn.Module):
    """The unsharded twin of `Routed`, and without a body of `Hidden`."""

    def __init__(self, table: Tensor, with_body: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(table.clone(), freeze=False)  # type: ignore[no-untyped-call]
        self.body = nn.Linear(WIDTH, WIDTH, dtype=torch.float64) if with_body else None

    def loss(self, ids: Tensor, labels: Tensor, real_vocab: int) -> Tensor:
        rows = self.embedding(ids)
        hidden = torch.tanh(rows if self.body is None else self.body(rows))
        return F.cross_entropy(F.linear(hidden, self.embedding.weight)[:, :real_vocab], labels)


def _batch(rank: int, step: int) -> tuple[Tensor, Tensor]:
    """Ids and labels of a rank: hot ids, some labels ignored, as many tokens as the rank and the step say."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    ids = torch.randint(0, REAL_VOCAB, (2, 9 + 3 * rank - step), generator=generator)
    ids = ids * ids // REAL_VOCAB
    labels = ids[1].clone()
    labels[::4] = -100
    return ids[0], labels


def _same_start(whole: Whole) -> None:
    for name, parameter in whole.named_parameters():
        if name.startswith("body"):
            parameter.data.copy_(drawn(*parameter.shape, seed=len(name)))


def _copies_are_their_homes(embedding: RoutedEmbedding, rank: int) -> None:
    """Bit by bit."""
    held = torch.tensor(embedding.shard_map.token_at[rank]).long()
    rows = embedding.gather_table()[held.clamp(min=0)]
    assert torch.equal(embedding.weight[held >= 0], rows[held >= 0])
    assert not embedding.weight[held < 0].any(), "empty slots"


def _trains_as_unsharded(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    table = drawn(VOCAB, WIDTH, seed=1)
    for name, shard_map in maps.items():
        whole = Whole(table, with_body=True)
        _same_start(whole)
        sharded = Routed(shard_map)
        sharded.embedding.load_table(table)
        assert whole.body is not None
        sharded.body.load_state_dict(whole.body.state_dict())
        assert [key for key, _ in sharded.named_parameters()] == ["embedding.weight", "body.weight", "body.bias"]
        ours, theirs = (torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=0.1) for model in (sharded, whole))
        for step in range(5):
            batches = [_batch(source, step) for source in range(world)]
            ids, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
            expected = whole.loss(ids, labels, REAL_VOCAB)
            backward(expected)
            loss = sharded.loss(*batches[rank])
            backward(loss)
            for parameter in sharded.body.parameters():  # of this rank's tokens
                dist.all_reduce(parameter.grad)
            sharded.embedding.synchronize_copies()
            what = f"{name}, step {step}"
            assert_equal(loss.detach(), expected.detach(), f"loss, {what}")
            total = torch.nn.utils.get_total_norm([each.grad for each in whole.parameters() if each.grad is not None])
            assert_equal(grad_norm(sharded), total, f"norm of the gradients, {what}")
            for optimizer in (ours, theirs):
                optimizer.step()
                optimizer.zero_grad()
            _copies_are_their_homes(sharded.embedding, rank)
            assert_equal(sharded.embedding.gather_table(), whole.embedding.weight.detach(), f"table, {what}")
            assert_equal(sharded.body.weight.detach(), whole.body.weight.detach(), f"body, {what}")
        assert len(ours.state) == 3, "one state for the table"


def test_five_adam_steps_equal_the_unsharded_model(on_ranks: Ranks) -> None:
    """Loss, norm of the gradients, table and copies after every step, under every map."""
    on_ranks(3, _trains_as_unsharded, maps_of(3))


def _hidden_trains_as_unsharded(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    table = drawn(VOCAB, WIDTH, seed=1)
    for name, shard_map in maps.items():
        whole, sharded = Whole(table, with_body=False), Hidden(shard_map)
        sharded.embedding.load_table(table)
        assert [key for key, _ in sharded.named_parameters()] == ["embedding.weight"]
        ours, theirs = (torch.optim.Adam(model.parameters(), lr=0.05) for model in (sharded, whole))
        for step in range(5):
            ids, labels = _batch(0, step)
            expected = whole.loss(ids, labels, REAL_VOCAB)
            backward(expected)
            loss = sharded.loss(ids, labels)
            backward(loss)
            assert_equal(loss.detach(), expected.detach(), f"loss, {name}, step {step}")
            total = torch.nn.utils.get_total_norm([each.grad for each in whole.parameters() if each.grad is not None])
            assert_equal(grad_norm(sharded), total, f"norm of the gradient, {name}, step {step}")
            for optimizer in (ours, theirs):
                optimizer.step()
                optimizer.zero_grad()
            assert_equal(sharded.embedding.gather_table(), whole.embedding.weight.detach(), f"table, {name}, step {step}")
        assert len(ours.state) == 1


def test_five_adam_steps_of_hidden_shards_equal_the_unsharded_model(on_ranks: Ranks) -> None:
    on_ranks(3, _hidden_trains_as_unsharded, {name: maps_of(3)[name] for name in ("contiguous", "copies", "uneven")})


def _logits_of_home_rows(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    table = drawn(VOCAB, WIDTH, seed=1)
    ids, labels = _batch(rank, 0)
    for name, shard_map in maps.items():
        fused, by_logits = Routed(shard_map), Routed(shard_map)
        for model in (fused, by_logits):
            model.embedding.load_table(table)
            for parameter in model.body.parameters():
                parameter.data.copy_(drawn(*parameter.shape, seed=4))
        loss = fused.loss(ids, labels)
        backward(loss)
        hidden = torch.tanh(by_logits.body(by_logits.embedding(ids)))
        logits = by_logits.head(hidden, "partitioned")
        again = vocab_parallel_cross_entropy(logits, gather_tokens(labels), shard_map)
        backward(again)
        assert_equal(again.detach(), loss.detach(), f"loss, {name}")
        for one, other in zip(by_logits.parameters(), fused.parameters(), strict=True):
            assert_equal(one.grad, other.grad, f"gradient of {list(one.shape)}, {name}")


def test_logits_of_a_tied_head_are_those_of_home_rows(on_ranks: Ranks) -> None:
    """Not of copies; their loss and its gradients are those of the fused loss."""
    on_ranks(3, _logits_of_home_rows, maps_of(3))


def _still_tied(model: Routed | Hidden, whole_table: Tensor) -> None:
    assert model.head.tied_to is model.embedding
    assert model.head.weight is model.embedding.weight
    assert sum(parameter is model.embedding.weight for parameter in model.parameters()) == 1
    assert not [key for key in model.state_dict() if key.startswith("head")]
    assert torch.equal(model.embedding.gather_table(), whole_table)


def _stays_tied(rank: int, world: int, shard_map: ShardMap) -> None:
    table = drawn(VOCAB, WIDTH, seed=1)
    ids, labels = _batch(rank, 0)
    group = dist.new_group([0, 1])
    for make in (Routed, Hidden):
        ids, labels = _batch(0, 0) if make is Hidden else _batch(rank, 0)
        model = make(shard_map, group, device="meta").to_empty(device="cpu")
        for parameter in model.parameters():
            parameter.data.fill_(0.25)
        model.embedding.load_table(table)
        _still_tied(model, table)
        loss = model.loss(ids, labels).detach()

        twin = copy.deepcopy(model)
        assert twin.embedding is not model.embedding
        assert twin.embedding.group is model.embedding.group
        assert twin.head.group is group
        _still_tied(twin, table)
        assert torch.equal(twin.loss(ids, labels), loss)
        twin.embedding.weight.data.zero_()
        _still_tied(model, table)

        twin.load_state_dict(model.state_dict())
        _still_tied(twin, table)
        assert torch.equal(twin.loss(ids, labels), loss)

        assert copy.deepcopy(model.head).tied_to is not model.embedding, "a head alone takes its embedding with it"

        model = model.to(torch.float32)
        _still_tied(model, table.float())
        model.embedding.weight = nn.Parameter(model.embedding.weight.detach().double())  # a new parameter, too
        _still_tied(model, table.float().double())


def test_it_stays_tied_whatever_is_done_to_the_model(on_ranks: Ranks) -> None:
    """Meta device, to_empty, deepcopy (the process group is not copied), state_dict, other dtypes, a new parameter."""
    on_ranks(2, _stays_tied, maps_of(2)["copies"])


def test_a_tied_head_is_made_for_the_map_of_its_embedding() -> None:
    """With its padding ids, which are no classes."""
    shard_map = ShardMap.contiguous(6, 1, real_vocab=5)
    routed, hidden = RoutedEmbedding(6, 2, shard_map), HiddenParallelEmbedding(6, 2, shard_map)
    assert VocabParallelLMHead(6, 2, tied_to=routed).shard_map == shard_map
    assert HiddenParallelLMHead(6, 2, tied_to=hidden).shard_map == shard_map
    with pytest.raises(MapError, match="a tied head needs the map of its embedding"):
        VocabParallelLMHead(6, 2, ShardMap.contiguous(6, 1), tied_to=routed)
    with pytest.raises(MapError, match="a tied head needs the map of its embedding"):
        HiddenParallelLMHead(6, 2, ShardMap.contiguous(6, 1), tied_to=hidden)


def test_a_tied_head_has_no_values_of_its_own() -> None:
    embedding = RoutedEmbedding(6, 2, dtype=torch.float64)
    embedding.load_table(drawn(6, 2, seed=1))
    head = VocabParallelLMHead(6, 2, tied_to=embedding, bias=True, dtype=torch.float64)
    assert head.bias is not None
    head.bias.data.fill_(1)
    head.reset_parameters(seed=3)
    assert torch.equal(embedding.weight, drawn(6, 2, seed=1))
    assert not head.bias.any()
    assert [key for key, _ in head.named_parameters()] == ["bias"]
