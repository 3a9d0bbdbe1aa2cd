"""Checks of ids: each stops by default, says where, and can be allowed with a note."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skewtool.corpus import Corpus, open_corpus
from skewtool.errors import CorpusError
from skewtool.profiling import profile
from skewtool.profiling.checks import as_table_index


@pytest.mark.parametrize(("dtype", "most"), [("uint8", 256), ("int8", 128), ("int16", 32768), ("uint16", 65536)])
def test_a_vocabulary_may_be_as_large_as_the_type(dtype: str, most: int, corpus_of: Callable[..., Corpus]) -> None:
    corpus = corpus_of({"a.npy": [5, 6]}, dtype)
    assert profile(corpus, vocab_size=most, windows=()).notes == ()
    with pytest.raises(CorpusError, match=rf"stores {dtype}, at most {most - 1}, but the vocabulary has {most + 1} ids: 1 "):
        profile(corpus, vocab_size=most + 1, windows=())


def test_wrapped_ids_stop_and_narrow_dtype_goes_on_with_a_note(corpus_of: Callable[..., Corpus]) -> None:
    corpus = corpus_of({"tok.npy": [5, 65535, 65536, 119546, 151643]})  # wrapped when they were written
    with pytest.raises(CorpusError, match=r"119547 ids: 54011 of them \(45%\) can never appear.*--allow narrow-dtype"):
        profile(corpus, vocab_size=119547)
    made = profile(corpus, vocab_size=119547, allow=("narrow-dtype",))
    assert np.flatnonzero(made.counts).tolist() == [0, 5, 20571, 54010, 65535]
    assert any("tok.npy: uint16 cannot contain ids >= 65536 of 119547" in note for note in made.notes)


@pytest.mark.parametrize("allow", [(), ("narrow-dtype",)])
@pytest.mark.parametrize("windows", [(), (2,)])
def test_an_id_equal_to_the_vocabulary_size_is_outside(
    allow: tuple[str, ...], windows: tuple[int, ...], corpus_of: Callable[..., Corpus]
) -> None:
    corpus = corpus_of({"a.npy": [0, 31, 32, 7, 40, 32]})
    with pytest.raises(CorpusError, match=r"vocabulary of 32: 3 of the 6 tokens.*, first 32 at token 2, up to 40"):
        profile(corpus, vocab_size=32, windows=windows, allow=allow)
    assert profile(corpus, vocab_size=41, windows=windows).num_tokens == 6


@pytest.mark.parametrize(("dtype", "bad"), [("int8", -1), ("int16", -100), ("int32", -100), ("int64", -(2**62)),
                                            ("int64", 2**62), ("uint32", 2**32 - 1)])  # fmt: skip
@pytest.mark.parametrize("vocab_size", [None, 100])
def test_negative_and_enormous_ids_are_named(
    dtype: str, bad: int, vocab_size: int | None, corpus_of: Callable[..., Corpus]
) -> None:
    with pytest.raises(CorpusError, match=rf"{bad} at token 1\b"):
        profile(corpus_of({"label_document.npy": [5, bad]}, dtype), vocab_size=vocab_size)


@given(
    ids=st.lists(st.integers(-3, 12), min_size=1, max_size=50),
    dtype=st.sampled_from(["int8", "int16", "int32", "int64"]),
    workers=st.integers(1, 2),
)
def test_allowed_bad_ids_are_dropped_and_counted(
    ids: list[int], dtype: str, workers: int, corpus_of: Callable[..., Corpus],
    naive_windows: Callable[..., Any], naive_key: Callable[..., int], as_lists: Callable[..., Any],
) -> None:  # fmt: skip
    assume(any(0 <= token < 10 for token in ids))
    made = profile(
        corpus_of({"a.npy": ids}, dtype), vocab_size=10, windows=(4,), sample_size=5, workers=workers, allow=("bad-ids",)
    )
    clamped = [token if 0 <= token < 10 else 10 for token in ids]
    counts, presence, num_windows, sample = naive_windows([(naive_key("a.npy"), clamped)], 11, 4, 5)
    assert (made.counts.tolist(), made.windows[0].presence.tolist()) == (counts[:10], presence[:10])
    assert made.windows[0].num_windows == num_windows
    assert as_lists(made.windows[0].sample.windows()) == [
        (key, [t for t in window if t != 10], [n for t, n in zip(window, numbers, strict=True) if t != 10])
        for key, window, numbers in sample
    ]
    assert made.dropped == ({"bad-ids": counts[10]} if counts[10] else {})
    assert made.num_tokens + counts[10] == len(ids) == made.sources[0].num_tokens
    assert any("were left out" in note for note in made.notes) == bool(counts[10])


@pytest.mark.parametrize("vocab_size", [128256, 50257])
def test_16_bit_ids_read_as_32_bit_are_recognised(vocab_size: int, tmp_path: Path) -> None:
    np.array([5, 7, 9, 11], "<u2").tofile(tmp_path / "train.bin")
    corpus = open_corpus(tmp_path / "train.bin", dtype="uint32")
    with pytest.raises(
        CorpusError,
        match=rf"{vocab_size}: 2 of the 2 .* 458757 at token 0, up to 720905; pairs .* --dtype uint16",
    ):
        profile(corpus, vocab_size=vocab_size)
    with pytest.raises(CorpusError, match="458757 at token 0"):
        profile(corpus, vocab_size=1000)


def test_a_single_wrong_id_is_not_taken_for_another_type(corpus_of: Callable[..., Corpus]) -> None:
    with pytest.raises(CorpusError) as caught:
        profile(corpus_of({"a.npy": [5, 128256, 9]}, "uint32"), vocab_size=128256)
    assert "--dtype uint16" not in str(caught.value)


@given(
    ids=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20), max_size=20),
    dtype=st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]),
    vocab_size=st.integers(1, 20) | st.integers(1, 2**31),
)
def test_table_index_is_the_id_or_the_row_for_bad_ones(
    ids: list[int], dtype: str, vocab_size: int, corpus_of: Callable[..., Corpus]
) -> None:
    stored = np.array(ids, np.int64).astype(dtype)
    source = corpus_of({"a.npy": [0]}).sources[0]
    index = as_table_index(stored, vocab_size, source, 0, ("bad-ids",))
    assert index.dtype.name in ("uint16", "uint32", "uint64")
    assert index.tolist() == [i if 0 <= i < vocab_size else vocab_size for i in stored.tolist()]


def test_the_earliest_bad_span_is_told_though_a_later_one_fails_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first span ends in a bad id after many blocks, the second begins with one."""
    monkeypatch.setattr("skewtool.profiling.local._SPAN_TOKENS", 1 << 21)
    ids = np.ones(1 << 22, np.uint16)
    ids[[(1 << 21) - 1, 1 << 21]] = 9
    np.save(tmp_path / "a.npy", ids)
    corpus = open_corpus(tmp_path / "a.npy")
    with pytest.raises(CorpusError, match=f"first 9 at token {(1 << 21) - 1}"):
        profile(corpus, vocab_size=9, windows=(64,), workers=2)
