"""Doubtful ids and files: an error with place and count, or left out when allowed and told."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.corpus.checks import CHECKS
from skewtool.errors import CorpusError
from skewtool.profiling import profile


def ids(number: int, most: int = 100_000) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.random.default_rng(0).integers(5, most, number)


@pytest.mark.parametrize(("num_tokens", "num_zeros"), [(2000, 1024), (100_000, 200_000), (200, 200), (0, 5000)])
@pytest.mark.parametrize("name", ["a.bin", "a.npy"])
def test_zeros_at_the_end(
    name: str, num_tokens: int, num_zeros: int, tmp_path: Path, ids_of: Callable[..., list[int]]
) -> None:
    stored = np.concatenate([ids(num_tokens), np.zeros(num_zeros, np.int64)]).astype("<u4")
    if name == "a.npy":
        np.save(tmp_path / name, stored)
    else:
        stored.tofile(tmp_path / name)
    problem = rf"ends with {num_zeros} zeros from token {num_tokens} of {num_tokens + num_zeros} on.*--allow zero-tail"
    dtype = "uint32" if name == "a.bin" else None
    with pytest.raises(CorpusError, match=problem):
        open_corpus(tmp_path / name, dtype=dtype)
    if not num_tokens:
        with pytest.raises(CorpusError, match="no tokens"):
            open_corpus(tmp_path / name, dtype=dtype, allow=["zero-tail"])
        return
    corpus = open_corpus(tmp_path / name, dtype=dtype, allow=["zero-tail"])
    assert (ids_of(corpus), corpus.dropped) == (stored[:num_tokens].tolist(), {"zero-tail": num_zeros})
    made = profile(corpus, vocab_size=100_000, windows=(64,))
    assert (made.num_tokens, made.dropped) == (num_tokens, {"zero-tail": num_zeros})
    assert any(f"{num_zeros} zeros at the end were left out" in note for note in made.notes)


@pytest.mark.parametrize(("num_tokens", "num_zeros"), [(5000, 1023), (127, 127), (3, 100)])
def test_few_zeros_may_be_padding(num_tokens: int, num_zeros: int, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.concatenate([ids(num_tokens), np.zeros(num_zeros, np.int64)]))
    assert open_corpus(tmp_path / "a.npy").num_tokens == num_tokens + num_zeros


@pytest.mark.parametrize(("stored", "read", "wider"), [("<u4", "uint16", "uint32"), ("<u8", "uint32", "uint64")])
def test_halves_of_wider_ids_are_an_error(stored: str, read: str, wider: str, tmp_path: Path) -> None:
    ids(1000).astype(stored).tofile(tmp_path / "a.bin")
    with pytest.raises(CorpusError, match=rf"first 2000 ids is below 4, .*is it {wider}\?.*--allow wrong-width"):
        open_corpus(tmp_path / "a.bin", dtype=read)
    corpus = open_corpus(tmp_path / "a.bin", dtype=read, allow=["wrong-width"])
    assert (corpus.num_tokens, corpus.dropped) == (2000, {})
    assert any(f"is it {wider}?" in note for note in corpus.notes)
    assert open_corpus(tmp_path / "a.bin", dtype=wider).notes == ()


def test_wider_ids_under_a_header_of_narrow_ones(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    halves = ids(1000).astype("<u4").view("<u2")
    with pytest.raises(CorpusError, match="is it uint32"):
        open_corpus(write_llmc(tmp_path / "a.bin", halves))


@pytest.mark.parametrize(("stored", "read"), [("<u2", "uint32"), ("<u4", "uint64"), ("<u4", "int64")])
def test_pairs_of_narrower_ids_are_bad_ids(stored: str, read: str, tmp_path: Path) -> None:
    ids(1000, 60_000).astype(stored).tofile(tmp_path / "a.bin")
    for vocab_size in (None, 128_256):
        with pytest.raises(CorpusError, match="of the 500 tokens"):
            profile(open_corpus(tmp_path / "a.bin", dtype=read), vocab_size=vocab_size)


def test_a_mask_is_no_array_of_ids(tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    write_raw(tmp_path / "part-0-00000.npy", [7, 8, 9])
    mask = np.random.default_rng(0).integers(0, 2, 1000).astype(np.bool_)
    mask.tofile(tmp_path / "part-0-00000.mask.npy")
    with pytest.raises(CorpusError, match=r"mask\.npy holds only zeros and ones.*--allow labels"):
        open_corpus(tmp_path, dtype="uint16")
    corpus = open_corpus(tmp_path, dtype="uint16", allow=["labels"])
    assert (ids_of(corpus), corpus.dropped) == ([7, 8, 9], {"labels": 500})


def test_label_files_beside_their_text(
    tmp_path: Path, write_megatron: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    write_megatron(tmp_path / "chat_text_document", [[5, 6], [7]], "int32")
    labels = write_megatron(tmp_path / "chat_label_document", [[-100, 6], [-100]], "int32")
    with pytest.raises(CorpusError, match=r"chat_label_document\.bin holds labels .*--allow labels"):
        open_corpus(tmp_path)
    corpus = open_corpus(tmp_path, allow=["labels"])
    assert (ids_of(corpus), corpus.dropped) == ([5, 6, 7], {"labels": 3})
    assert any("left out by --allow labels: chat_label_document.bin" in note for note in corpus.notes)
    with pytest.raises(CorpusError, match=r"first -100 at token 0, .*files of labels"):
        profile(open_corpus(labels), vocab_size=10)


def test_a_file_given_twice(tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    path = write_raw(tmp_path / "a.bin", [1, 2])
    for paths in ([path, path], [path, tmp_path], [path, tmp_path / "*.bin"]):
        with pytest.raises(CorpusError, match=r"a\.bin is the same file as .*--allow counted-twice"):
            open_corpus(paths, dtype="uint16")
        corpus = open_corpus(paths, dtype="uint16", allow=["counted-twice"])
        assert (ids_of(corpus), corpus.dropped) == ([1, 2], {"counted-twice": 2})


def test_a_link_to_a_file_is_the_same_file(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    write_raw(tmp_path / "a.bin", [1, 2])
    (tmp_path / "b.bin").symlink_to("a.bin")
    with pytest.raises(CorpusError, match=r"b\.bin is the same file as .*a\.bin"):
        open_corpus(tmp_path, dtype="uint16")


@pytest.mark.parametrize(("num_bytes", "num_tokens", "dropped"), [(7, 3, 1), (3, 1, 1)])
def test_trailing_bytes_are_left_out_when_allowed(num_bytes: int, num_tokens: int, dropped: int, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(range(1, num_bytes + 1)))
    corpus = open_corpus(tmp_path / "a.bin", dtype="uint16", allow=["size"])
    assert (corpus.num_tokens, corpus.dropped) == (num_tokens, {"size": dropped})
    assert any("trailing bytes were left out" in note for note in corpus.notes)


def test_places_of_documents_must_cover_the_file(tmp_path: Path, write_as: Callable[..., Path],
                                                 ids_of: Callable[..., list[int]]) -> None:  # fmt: skip
    write_as("olmo", tmp_path, [[5, 6], [7]])
    with (tmp_path / "part-0-00000.npy").open("ab") as file:
        file.write(bytes(400))  # allocated and never filled
    with pytest.raises(CorpusError, match=r"has 412 bytes, but part-0-00000\.csv\.gz promises 3 uint32 tokens"):
        open_corpus(tmp_path, dtype="uint32")
    corpus = open_corpus(tmp_path, dtype="uint32", allow=["size"])
    assert (ids_of(corpus), corpus.num_documents, corpus.dropped) == ([5, 6, 7], 2, {"size": 100})
    with pytest.raises(CorpusError, match=r"csv\.gz says 3 tokens, so 137\.333 bytes each"):
        open_corpus(tmp_path)


def test_all_ones_without_a_vocabulary(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    corpus = open_corpus(write_raw(tmp_path / "a.bin", [5, 65535, 7, 65535]), dtype="uint16")
    with pytest.raises(CorpusError, match=r"holds 65535, all ones in uint16, 2 times .* first at token 1.*--vocab-size"):
        profile(corpus)
    assert profile(corpus, vocab_size=65536).num_tokens == 4
    with pytest.raises(CorpusError, match="65535 is all ones"):
        profile(corpus, vocab_size=50257)


def test_unknown_checks_are_named(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="unknown check 'all' to allow; known are bad-ids"):
        open_corpus(write_raw(tmp_path / "a.bin", [1]), dtype="uint16", allow=["all"])
    assert open_corpus(tmp_path / "a.bin", dtype="uint16", allow=list(CHECKS)).num_tokens == 1
