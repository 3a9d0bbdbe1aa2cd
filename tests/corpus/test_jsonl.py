"""JSON lines of ids: which field, and lines that hold none."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError, SkewtoolError
from skewtool.profiling import profile


def write(path: Path, *lines: str) -> Path:
    path.write_bytes("\n".join(lines).encode())
    return path


@pytest.mark.parametrize("name", ["input_ids", "tokens", "token_ids", "ids"])
def test_usual_names_are_known(name: str, tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "a", f'{{"text": "a b", "{name}": [1, 2], "labels": [-100, 2]}}', "", f'{{"{name}": []}}')
    corpus = open_corpus(path)
    assert (corpus.format, ids_of(corpus), corpus.num_tokens, corpus.num_documents) == ("jsonl", [1, 2], None, None)


def test_a_count_is_not_taken_for_the_ids(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "a", '{"tokens": 2, "ids": [7, 8]}', '{"tokens": 1, "ids": [9]}')
    assert ids_of(open_corpus(path)) == [7, 8, 9]


def test_the_field_can_be_chosen(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "a", '{"input_ids": [1], "mine": [2]}')
    assert ids_of(open_corpus(path, column="mine")) == [2]
    with pytest.raises(CorpusError, match="--tokenizer"):
        open_corpus(path, column="other")


def test_null_documents_hold_nothing_and_null_ids_are_bad(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "a", '{"tokens": null}', '{"tokens": [1, null, 3]}')
    assert ids_of(open_corpus(path)) == [1, -1, 3]
    with pytest.raises(CorpusError, match="first -1 at token 1"):
        profile(open_corpus(path), vocab_size=9)


@pytest.mark.parametrize(("line", "match"), [
    ('{"tokens": [1, 2.0]}', "list of whole numbers"), ('{"tokens": [1, true]}', "list of whole numbers"),
    ('{"tokens": ["1"]}', "list of whole numbers"), ('{"tokens": [[1], [2]]}', "list of whole numbers"),
    ('{"tokens": 5}', "list of whole numbers"), ('{"other": [1]}', r"no field 'tokens' \(found: other\)"),
    ("[1, 2]", "found: list"), ("{", "no JSON object"), ('{"tokens": [1]', "no JSON object"),
    ('{"tokens": [NaN]}', "no JSON"),
    ('{"tokens": [1e999]}', "list of whole numbers|no JSON"), ("[" * 100_000, "no JSON object"),
    ('{"tokens": [123456789012345678901234567890]}', "list of whole numbers|no JSON"),
])  # fmt: skip
def test_lines_without_ids_are_named(line: str, match: str, tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "a", '{"tokens": [1]}', line)
    with pytest.raises(CorpusError, match=rf"a, line 2: .*{match}" if "|" not in match else match):
        ids_of(open_corpus(path))


def test_ids_beyond_63_bits_are_bad_ids(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "a", '{"tokens": [1, 18446744073709551615]}', '{"tokens": [-5]}')
    assert ids_of(open_corpus(path)) == [1, 2**64 - 1, -5]
    with pytest.raises(CorpusError, match=f"first {2**64 - 1} at token 1"):
        profile(open_corpus(path), vocab_size=9)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    (tmp_path / "a").write_bytes(b'\xef\xbb\xbf{"tokens": [4]}\n')
    assert ids_of(open_corpus(tmp_path / "a")) == [4]


def test_compressed_text_is_tokenized(tmp_path: Path, make_tokenizer: Callable[..., Path],
                                      ids_of: Callable[..., list[int]]) -> None:  # fmt: skip
    tokenizer = make_tokenizer(tmp_path / "tokenizer.json")
    content = b'{"text": "the cat"}\n'
    for name, data in (("a.jsonl", content), ("b.jsonl.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(data)
    assert ids_of(open_corpus(tmp_path / "a.jsonl", tokenizer=tokenizer)) == ids_of(
        open_corpus(tmp_path / "b.jsonl.gz", tokenizer=tokenizer)
    )
    for name, data in (("a.txt", b"the cat\n"), ("b.txt.gz", gzip.compress(b"the cat\n"))):
        (tmp_path / name).write_bytes(data)
    assert ids_of(open_corpus(tmp_path / "a.txt", tokenizer=tokenizer)) == ids_of(
        open_corpus(tmp_path / "b.txt.gz", tokenizer=tokenizer)
    )


def test_many_lines_make_full_blocks(tmp_path: Path) -> None:
    path = write(tmp_path / "a", *(f'{{"tokens": [{number}, {number}]}}' for number in range(1000)))
    blocks = list(open_corpus(path).blocks(block_tokens=128))
    assert max(block.size for block in blocks) == 128
    assert np.concatenate(blocks).tolist() == [number for number in range(1000) for _ in range(2)]
    with pytest.raises(SkewtoolError, match="cut into parts"):
        open_corpus(path).part(0, 0.5)


def test_a_directory_of_ids_needs_no_tokenizer(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    for number in (0, 1):
        write(tmp_path / f"{number}.jsonl", f'{{"tokens": [{number}]}}')
    write(tmp_path / "config.json", "{", '  "vocab_size": 9', "}")
    corpus = open_corpus(tmp_path)
    assert (ids_of(corpus), corpus.ignored_files) == ([0, 1], ("config.json",))
