"""`profile`: the same bytes whoever counts and however the corpus is cut; and what it tells beside the counts."""

import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import Corpus, TokenizerFile, open_corpus
from skewtool.errors import CorpusError, ProfileError, SkewtoolError
from skewtool.profiling import Profile, local, profile

FILES = st.dictionaries(
    st.sampled_from(["a.npy", "b.npy", "c.npy"]), st.lists(st.integers(0, 15), min_size=1, max_size=80), min_size=1
)


@given(
    files=FILES, length=st.integers(1, 9), other=st.integers(1, 9), sample_size=st.integers(0, 6),
    seed=st.integers(-(2**63), 2**63 - 1), workers=st.integers(1, 3), span=st.sampled_from([1, 16, 50, 1 << 22]),
    dtype=st.sampled_from(["uint8", "int16", "uint16", "int32", ">u4", "int64"]),
)  # fmt: skip
def test_profile_equals_the_naive_twin(
    files: dict[str, list[int]], length: int, other: int, sample_size: int, seed: int, workers: int, span: int,
    dtype: str, corpus_of: Callable[..., Corpus], naive_windows: Callable[..., Any],
    naive_key: Callable[..., int], as_lists: Callable[..., Any],
) -> None:  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "_SPAN_TOKENS", span)
        made = profile(
            corpus_of(files, dtype), vocab_size=16, windows=(length, other, length), sample_size=sample_size,
            seed=seed, workers=workers,
        )  # fmt: skip
    streams = [(naive_key(name, seed), ids) for name, ids in files.items()]
    assert [window.length for window in made.windows] == sorted({length, other})
    for window in made.windows:
        counts, presence, num_windows, sample = naive_windows(streams, 16, window.length, sample_size)
        assert (made.counts.tolist(), window.presence.tolist(), window.num_windows) == (counts, presence, num_windows)
        assert as_lists(window.sample.windows()) == sample
    assert [(row.name, row.num_tokens) for row in made.sources] == [(name, len(files[name])) for name in sorted(files)]


@pytest.mark.parametrize("vocab_size", [None, 600])
@pytest.mark.parametrize("windows", [(), (64,), (16, 48)])
def test_file_is_the_same_bytes_for_any_workers_and_spans(
    vocab_size: int | None, windows: tuple[int, ...], corpus_of: Callable[..., Corpus],
    bytes_of: Callable[[Profile], bytes], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    random = np.random.default_rng(1)
    corpus = corpus_of({f"{i}.npy": random.zipf(1.3, 3000 + 7 * i).clip(max=600) - 1 for i in range(3)})
    files = set()
    for span in (40, 1000, 1 << 22):
        monkeypatch.setattr(local, "_SPAN_TOKENS", span)
        for workers in (1, 2, 3):
            files.add(bytes_of(profile(corpus, vocab_size=vocab_size, windows=windows, sample_size=9, workers=workers)))
    assert len(files) == 1


def test_file_does_not_depend_on_where_the_corpus_lies(
    corpus_of: Callable[..., Corpus], bytes_of: Callable[[Profile], bytes]
) -> None:
    one, other = (corpus_of({"a.npy": [1, 2, 3], "b.npy": [3, 3]}) for _ in range(2))
    assert one.files != other.files
    assert bytes_of(profile(one)) == bytes_of(profile(other))


def test_files_of_one_name_give_the_same_profile_in_any_order(
    corpus_of: Callable[..., Corpus], bytes_of: Callable[[Profile], bytes]
) -> None:
    one, other = corpus_of({"train.npy": [1, 2, 3, 4]}).files[0], corpus_of({"train.npy": [5, 6, 7, 8]}).files[0]
    options: dict[str, Any] = {"vocab_size": 9, "windows": (4,), "sample_size": 1}
    made = {
        bytes_of(replace(profile(open_corpus(paths), workers=workers, **options), timeline=None))  # which tells the order
        for paths in ([one, other], [other, one])
        for workers in (1, 2)
    }
    assert len(made) == 1


def test_seed_chooses_other_windows(corpus_of: Callable[..., Corpus]) -> None:
    corpus = corpus_of({"a.npy": np.arange(400) % 7})
    keys = [profile(corpus, windows=(4,), sample_size=10, seed=seed).windows[0].sample.keys.tolist() for seed in (0, 1)]
    assert keys[0] != keys[1]


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1, 2**64])
def test_a_seed_of_more_than_64_bits_is_an_error_or_works(seed: int, corpus_of: Callable[..., Corpus]) -> None:
    try:
        made = profile(corpus_of({"a.npy": [1]}), seed=seed)
    except SkewtoolError:
        return
    assert made.seed == seed


def test_without_windows_only_counts(corpus_of: Callable[..., Corpus]) -> None:
    made = profile(corpus_of({"a.npy": [1, 2, 2]}), vocab_size=4, windows=())
    assert (made.counts.tolist(), made.windows, made.num_tokens) == ([0, 1, 2, 0], (), 3)
    with pytest.raises(ProfileError, match="--window 8192"):
        _ = made.tokens_per_rank


def test_window_longer_than_the_source_is_one_window_that_is_not_sampled(corpus_of: Callable[..., Corpus]) -> None:
    made = profile(corpus_of({"a.npy": [1, 2, 2]}), windows=(100,))
    assert (made.windows[0].num_windows, made.windows[0].presence.tolist()) == (1, [0, 1, 1])
    assert len(made.windows[0].sample) == 0


def test_vocabulary_that_was_not_given_is_inferred_with_a_note(corpus_of: Callable[..., Corpus]) -> None:
    made = profile(corpus_of({"a.npy": [1, 40], "b.npy": [7]}), workers=2)
    assert (made.vocab_size, made.num_distinct) == (41, 3)
    assert any("vocabulary size was not given" in note and "41" in note for note in made.notes)
    assert profile(corpus_of({"a.npy": [1, 40]}), vocab_size=41).notes == ()


def test_vocabulary_of_a_tokenizer_or_a_larger_table(
    tmp_path: Path, corpus_of: Callable[..., Corpus], write_tokenizer: Callable[..., Path]
) -> None:
    tokenizer = TokenizerFile(write_tokenizer(tmp_path / "t.json", base=143, added=3))
    corpus = corpus_of({"a.npy": [1, 145]})
    made = profile(corpus, tokenizer=tokenizer)
    assert made.vocab_size == 146
    assert made.tokenizer is not None
    assert (made.tokenizer.base_size, made.tokenizer.size_with_added, made.tokenizer.num_ids) == (143, 146, 146)
    assert profile(corpus, tokenizer=tokenizer, vocab_size=160).vocab_size == 160
    with pytest.raises(ProfileError, match="--vocab-size 145 is below the 146 ids"):
        profile(corpus, tokenizer=tokenizer, vocab_size=145)


@pytest.mark.parametrize("windows", [(), (2,)])
def test_text_is_counted_as_its_tokens(
    windows: tuple[int, ...], tmp_path: Path, write_tokenizer: Callable[..., Path]
) -> None:
    tokenizer = write_tokenizer(tmp_path / "t.json", base=4)
    (tmp_path / "a.jsonl").write_text('{"text": "w1 w3"}\n{"text": "w3"}\n')
    made = profile(
        open_corpus(tmp_path / "a.jsonl", tokenizer=tokenizer), tokenizer=TokenizerFile(tokenizer), windows=windows
    )
    assert made.counts.tolist() == [0, 1, 0, 2]


def test_text_without_any_document_is_no_crash(tmp_path: Path, write_tokenizer: Callable[..., Path]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    corpus = open_corpus(tmp_path / "a.jsonl", tokenizer=write_tokenizer(tmp_path / "t.json", base=4))
    with pytest.raises(SkewtoolError, match="token"):
        profile(corpus)


def test_counts_sha256_is_of_little_endian_int64(corpus_of: Callable[..., Corpus]) -> None:
    made = profile(corpus_of({"a.npy": [1, 1, 2]}), vocab_size=3)
    assert made.counts_sha256 == sha256(np.array([0, 2, 1], "<i8").tobytes()).hexdigest()


@pytest.mark.parametrize("order", ["C", "F"])
def test_order_of_an_array_in_its_file_does_not_matter(order: str, tmp_path: Path) -> None:
    array = np.random.default_rng(3).integers(0, 50, (40, 25)).astype(np.uint16)
    np.save(tmp_path / "a.npy", array if order == "C" else np.asfortranarray(array))
    made = profile(open_corpus(tmp_path / "a.npy"), vocab_size=50, windows=(10,), workers=2)
    assert made.counts.tolist() == np.bincount(array.reshape(-1), minlength=50).tolist()


def test_parts_of_a_corpus_count_every_token_once(corpus_of: Callable[..., Corpus]) -> None:
    corpus = corpus_of({"a.npy": np.arange(70) % 9, "b.npy": np.arange(31) % 5})
    whole, first, second = (profile(part, vocab_size=9, windows=(4,)) for part in
                            (corpus, corpus.part(0, 0.8), corpus.part(0.8, 1)))  # fmt: skip
    assert (first.counts + second.counts).tolist() == whole.counts.tolist()
    assert first.num_tokens == 81


@pytest.mark.parametrize(
    "bad", [{"windows": (0,)}, {"windows": (-5, 4)}, {"sample_size": -1}, {"workers": 0}, {"vocab_size": 0},
            {"allow": ("everything",)}],
)  # fmt: skip
def test_parameters_out_of_range(bad: dict[str, Any], corpus_of: Callable[..., Corpus]) -> None:
    with pytest.raises(ProfileError):
        profile(corpus_of({"a.npy": [1]}), **bad)


def test_unknown_window_length_names_the_known_ones(corpus_of: Callable[..., Corpus]) -> None:
    made = profile(corpus_of({"a.npy": [1, 2]}), windows=(2, 4))
    assert (made.tokens_per_rank, made.window(2).length) == (4, 2)
    with pytest.raises(ProfileError, match=r"no windows of 3 tokens \(it has: 2, 4\)"):
        made.window(3)


def test_progress_adds_up_to_the_bytes_read(corpus_of: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_SPAN_TOKENS", 100)
    corpus = corpus_of({"a.npy": np.arange(999) % 9})
    told: list[int] = []
    profile(corpus, workers=3, windows=(10,), progress=told.append)
    assert sum(told) == corpus.num_bytes == 2 * 999
    assert len(told) == 10


def test_tables_are_read_only(corpus_of: Callable[..., Corpus]) -> None:
    made = profile(corpus_of({"a.npy": [1, 2, 1, 2]}), windows=(2,))
    sample = made.windows[0].sample
    for array in (made.counts, made.windows[0].presence, sample.keys, sample.indptr, sample.ids, sample.counts):
        assert not array.flags.writeable


@pytest.mark.skipif(os.name != "posix", reason="only there file names are bytes")
def test_a_file_name_that_is_no_text_is_counted_or_an_error(tmp_path: Path) -> None:
    try:
        np.save(tmp_path / os.fsdecode(b"\xff.npy"), np.array([1, 2], np.uint16))
    except OSError:
        pytest.skip("this file system takes only text")
    try:
        made = profile(open_corpus(tmp_path))
        made.save(tmp_path / "profile")
    except SkewtoolError:
        return
    assert made.num_tokens == 2


def test_the_first_bad_place_is_named_whoever_meets_it(
    corpus_of: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_SPAN_TOKENS", 10)
    ids = np.zeros(1000, np.int64)
    ids[[205, 777]] = 99
    for workers in (1, 2, 3):
        with pytest.raises(CorpusError, match="99 at token 205"):
            profile(corpus_of({"a.npy": ids}), vocab_size=50, windows=(10,), workers=workers)
