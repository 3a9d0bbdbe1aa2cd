"""`Timeline`: exact for each block, the same bytes whoever counts, and refused when its arrays do not fit together."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import ArraySource, Corpus, Ids, open_corpus
from skewtool.errors import ProfileError
from skewtool.profiling import Profile, Timeline, blocks, local, merge, merge_parts, profile, profile_part, timeline
from skewtool.profiling.places import task_range


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_LEAST_BYTES", 1)


def recounted(corpus: Corpus, windows: tuple[int, ...], vocab_size: int, followed: int) -> dict[str, Any]:
    """The time line the slow way: each block read again, as the share of one of 32 tasks."""
    sources = [np.concatenate([[0], *source.blocks()])[1:].astype(np.int64) for source in corpus.sources]
    parts = []
    number = min(32, corpus.num_bytes)
    for index in range(number):
        (first, start), (last, stop) = task_range(corpus, windows, index, number)
        found = [np.zeros(0, np.int64)]
        for each in range(first, min(last + 1, len(sources))):
            found.append(sources[each][start if each == first else 0 : stop if each == last else None])
        ids = np.concatenate(found)
        parts.append(ids[ids < vocab_size])
    parts = [ids for ids in parts if ids.size]
    tables = [np.bincount(ids, minlength=vocab_size)[:followed] for ids in parts]
    total = np.sum(tables, axis=0)
    order = sorted((token for token in range(total.size) if total[token]), key=lambda token: (-total[token], token))
    order = order[: timeline.NUM_IDS]
    loads = np.zeros((len(parts), 64), int)
    for block, table in enumerate(tables):
        np.add.at(loads[block], np.arange(table.size) * 64 // vocab_size, table)
    return {
        "num_tokens": [ids.size for ids in parts],
        "ids": order,
        "counts": [table[order].tolist() for table in tables],
        "loads": loads.tolist(),
    }


def as_dict(made: Timeline | None) -> dict[str, Any]:
    return {name: getattr(made, name).tolist() for name in ("num_tokens", "ids", "counts", "loads")}


@given(
    files=st.lists(st.lists(st.integers(0, 79), min_size=1, max_size=120), min_size=1, max_size=3),
    windows=st.sampled_from([(), (2,), (4, 6)]), vocab_size=st.sampled_from([None, 80, 70]),
    followed=st.sampled_from([30, 1 << 18]), num_ids=st.sampled_from([5, 4096]), span=st.sampled_from([3, 1 << 22]),
    count=st.sampled_from([1, 2, 5, 20]), order=st.randoms(use_true_random=False),
)  # fmt: skip
def test_it_is_exact_for_any_split_and_order(
    files: list[list[int]], windows: tuple[int, ...], vocab_size: int | None, followed: int, num_ids: int, span: int,
    count: int, order: random.Random, corpus_of: Callable[..., Corpus], bytes_of: Callable[[Profile], bytes],
) -> None:  # fmt: skip
    corpus = corpus_of({f"{number}.npy": ids for number, ids in enumerate(files)})
    options: dict[str, Any] = {"vocab_size": vocab_size, "windows": windows, "sample_size": 2, "allow": ("bad-ids",)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "NUM_FOLLOWED", followed)
        patch.setattr(timeline, "NUM_IDS", num_ids)
        plain = profile(corpus, **options)
        patch.setattr(local, "_SPAN_TOKENS", span)
        parts = [profile_part(corpus, task_index=i, task_count=count, workers=1 + i % 2, **options) for i in range(count)]
        order.shuffle(parts)
        assert bytes_of(merge_parts(parts)) == bytes_of(plain)
        if plain.num_tokens:
            assert as_dict(plain.timeline) == recounted(corpus, windows, plain.vocab_size, followed)
        else:
            assert plain.timeline is None


def test_sources_of_unknown_size_lie_in_one_block(tmp_path: Path, bytes_of: Callable[[Profile], bytes]) -> None:
    rng = np.random.default_rng(5)
    (tmp_path / "b.jsonl").write_text("".join(f'{{"input_ids": {rng.integers(0, 90, 50).tolist()}}}\n' for _ in range(20)))
    for name, size in (("a.npy", 900), ("c.npy", 70)):
        np.save(tmp_path / name, rng.integers(0, 90, size).astype(np.uint16))
    corpus = open_corpus([tmp_path / name for name in ("a.npy", "b.jsonl", "c.npy")])
    made = profile(corpus, vocab_size=90, windows=(8,), sample_size=2, workers=2)
    assert as_dict(made.timeline) == recounted(corpus, (8,), 90, 1 << 18)
    assert made.timeline is not None
    assert made.timeline.num_tokens.max() >= 1000
    parts = [profile_part(corpus, task_index=i, task_count=7, vocab_size=90, windows=(8,), sample_size=2) for i in range(7)]
    assert bytes_of(merge_parts(parts[::-1])) == bytes_of(made)


def test_blocks_are_no_reason_to_read_anything_twice(
    corpus_of: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of({"a.npy": np.arange(999) % 9})
    asked: list[tuple[int, int | None]] = []
    plain = ArraySource.blocks

    def read(self: ArraySource, start: int = 0, stop: int | None = None, *rest: Any, **more: Any) -> Iterator[Ids]:
        asked.append((start, stop))
        return plain(self, start, stop, *rest, **more)

    monkeypatch.setattr(ArraySource, "blocks", read)
    made = profile(corpus, windows=(10,))
    assert made.timeline is not None
    assert len(made.timeline) == 32
    assert asked == [(0, 999)]


def test_one_profile_keeps_its_time_line_and_several_have_none(corpus_of: Callable[..., Corpus]) -> None:
    one, other = (profile(corpus_of({f"{name}.npy": [1, 2, 3]}), windows=(2,)) for name in "ab")
    assert as_dict(merge([one]).timeline) == as_dict(one.timeline)
    assert merge([one, other]).timeline is None


def _timeline(**changed: Any) -> Timeline:
    """Two blocks, 0 0 1 and 1 9, of ten ids, of which nine are followed one by one or by range."""
    loads = np.zeros((2, 64), np.int64)
    loads[0, 0], loads[0, 6], loads[1, 6] = 2, 1, 1
    arrays = {"num_tokens": np.array([3, 2]), "ids": np.array([0, 1], np.int32), "counts": np.array([[2, 1], [0, 1]]),
              "loads": loads}  # fmt: skip
    return Timeline(**(arrays | changed))


def test_arrays_are_read_only_views() -> None:
    given = np.array([3, 2])
    made = _timeline(num_tokens=given)
    assert len(made) == 2
    assert not made.num_tokens.flags.writeable
    assert given.flags.writeable


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"num_tokens": np.array([3, 2, 1])}, r"counts of a time line must be .* of shape \(3, 2\)"),
        ({"num_tokens": np.array([3.0, 2.0])}, "num_tokens of a time line .* got float64"),
        ({"counts": np.array([[2, 1], [-1, 1]])}, "counts of a time line"),
        ({"loads": np.zeros((2, 65), np.int64)}, r"loads of a time line .* got int64 \(2, 65\)"),
        ({"ids": np.array([1, 1], np.int32)}, "an id is twice"),
        ({"num_tokens": np.array([2, 2])}, "fewer than its ids have"),
        ({"counts": np.array([[2, 2], [0, 1]])}, "fewer than its ids have"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(changed: dict[str, Any], what: str) -> None:
    with pytest.raises(ProfileError, match=what):
        _timeline(**changed)


def test_blocks_are_all_of_the_corpus() -> None:
    counts = np.bincount([0, 0, 1, 1, 9], minlength=10)
    _timeline().check_fits(counts)
    with pytest.raises(ProfileError, match="do not add up"):
        _timeline().check_fits(counts + 1)
    with pytest.raises(ProfileError, match="do not add up"):
        _timeline(ids=np.array([0, 2], np.int32)).check_fits(counts)
    with pytest.raises(ProfileError, match="has id 11, ids end at 9"):
        _timeline(ids=np.array([0, 11], np.int32)).check_fits(counts)
