"""Text: the ids are those of the whole text, however it is read; bad lines are named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from skewtool.corpus import open_corpus, text
from skewtool.errors import CorpusError, SkewtoolError


@pytest.fixture(scope="module")
def tokenizers(new_dir: Callable[[], Path], make_tokenizer: Callable[..., Path]) -> dict[str, Path]:
    folder = new_dir()
    return {pattern: make_tokenizer(folder / f"{pattern}.json", pattern) for pattern in ("gpt2", "llama3")}


@pytest.fixture(scope="module")
def tokenizer(tokenizers: dict[str, Path]) -> Path:
    return tokenizers["gpt2"]


def write_lines(path: Path, *documents: object) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), "utf-8")
    return path


def whole(tokenizer: Path, content: str) -> list[int]:
    return list(Tokenizer.from_file(str(tokenizer)).encode(content, add_special_tokens=False).ids)


@given(
    content=st.lists(
        st.sampled_from(["the", "cat", "_", "\n", "\n", " ", ".", "12", "é", "\r\n", "'s", "\u00a0", "Ⅻ", "中", "e\u0301"]),
        min_size=1,
        max_size=40,
    ).map("".join),
    pattern=st.sampled_from(["gpt2", "llama3"]),
    piece=st.integers(1, 20),
)
@example(content="the cat_\nsat", pattern="llama3", piece=4)
def test_pieces_give_the_ids_of_the_whole_text(
    content: str, pattern: str, piece: int, new_dir: Callable[[], Path], tokenizers: dict[str, Path],
    ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    path = new_dir() / "book.txt"
    path.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_PIECE_CHARACTERS", piece)
        ids = ids_of(open_corpus(path, tokenizer=tokenizers[pattern], format="text"), block_tokens=5)
    assert ids == whole(tokenizers[pattern], content)


def test_byte_order_mark_is_no_text(tmp_path: Path, tokenizer: Path, ids_of: Callable[..., list[int]]) -> None:
    (tmp_path / "a.txt").write_text("the cat", "utf-8-sig")
    corpus = open_corpus(tmp_path / "a.txt", tokenizer=tokenizer)
    assert ids_of(corpus) == whole(tokenizer, "the cat")
    assert (corpus.format, corpus.num_tokens, corpus.num_documents) == ("text", None, 1)


def test_lines_are_documents_with_special_tokens(
    tmp_path: Path, make_tokenizer: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    tokenizer = make_tokenizer(tmp_path / "tokenizer.json", with_bos=True)
    path = write_lines(tmp_path / "a.jsonl", {"text": "the"}, {"text": "cat\nsat", "id": 7}, {"text": ""})
    expected = [0, *whole(tokenizer, "the"), 0, *whole(tokenizer, "cat\nsat"), 0]
    corpus = open_corpus(path, tokenizer=tokenizer)
    assert (corpus.format, ids_of(corpus)) == ("jsonl", expected)


def test_a_plain_file_gets_no_special_tokens(
    tmp_path: Path, make_tokenizer: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    tokenizer = make_tokenizer(tmp_path / "tokenizer.json", with_bos=True)
    (tmp_path / "a.txt").write_text("the cat")
    assert 0 not in ids_of(open_corpus(tmp_path / "a.txt", tokenizer=tokenizer))


def test_column_chooses_the_field(tmp_path: Path, tokenizer: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write_lines(tmp_path / "a.jsonl", {"text": "no", "content": "the"})
    assert ids_of(open_corpus(path, tokenizer=tokenizer, column="content")) == whole(tokenizer, "the")


def test_blank_lines_are_no_documents(tmp_path: Path, tokenizer: Path, ids_of: Callable[..., list[int]]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "the"}\r\n\n  \n{"text": "cat"}')
    expected = [*whole(tokenizer, "the"), *whole(tokenizer, "cat")]
    assert ids_of(open_corpus(tmp_path / "a.jsonl", tokenizer=tokenizer)) == expected


@pytest.mark.parametrize("line", ['{"input_ids": [1, 2]}', '{"text": 5}', '{"text": null}', "[1, 2]", '"the"', "3"])
def test_a_line_without_text_is_named(line: str, tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"text": "the"}}\n{line}\n')
    with pytest.raises(CorpusError, match=r"a\.jsonl, line 2: no text in field 'text'.*--column"):
        list(open_corpus(tmp_path / "a.jsonl", tokenizer=tokenizer).blocks())


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "cut o',
        b"not JSON",
        b'{"text": "\xff"}',
        b'{"text": "x", "id": ' + b"1" * 5000 + b"}",  # more digits than Python converts
        b'{"text": ' + b"[" * 100_000,  # deeper than Python recurses
        b'{"text": "\\ud800"}',  # half a surrogate pair is no text
    ],
    ids=["cut", "not-json", "not-utf8", "long-number", "deep", "surrogate"],
)
def test_a_line_that_cannot_be_read_is_named(line: bytes, tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "the"}\n' + line + b"\n")
    with pytest.raises(CorpusError, match=r"a\.jsonl, line 2"):
        list(open_corpus(tmp_path / "a.jsonl", tokenizer=tokenizer, format="jsonl").blocks())


def test_a_text_file_in_another_encoding_is_an_error(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"the cat " * 10_000 + b"\xff")
    with pytest.raises(CorpusError, match="not UTF-8"):
        list(open_corpus(tmp_path / "a.txt", tokenizer=tokenizer).blocks())


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_text_needs_a_tokenizer(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"text": "the"}\n' if name == "a.jsonl" else "the cat")
    with pytest.raises(CorpusError, match="--tokenizer"):
        open_corpus(tmp_path / name)


@pytest.mark.parametrize("content", [None, "{}", "\0"])
def test_tokenizer_that_cannot_be_read(content: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat")
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CorpusError, match=r"tokenizer\.json"):
        open_corpus(tmp_path / "a.txt", tokenizer=tmp_path / "tokenizer.json")


def test_format_text_reads_what_looks_like_json(tmp_path: Path, tokenizer: Path, ids_of: Callable[..., list[int]]) -> None:
    (tmp_path / "a.c").write_text("{ the cat }")
    corpus = open_corpus(tmp_path / "a.c", tokenizer=tokenizer, format="text")
    assert ids_of(corpus) == whole(tokenizer, "{ the cat }")


def test_text_can_only_be_read_whole(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat")
    corpus = open_corpus(tmp_path / "a.txt", tokenizer=tokenizer)
    with pytest.raises(CorpusError, match="read whole"):
        list(corpus.sources[0].blocks(start=1))
    with pytest.raises(SkewtoolError, match="cut into parts"):
        corpus.part(0, 0.5)
