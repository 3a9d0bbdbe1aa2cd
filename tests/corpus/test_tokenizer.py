"""A tokenizer has three sizes; each means something else."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from skewtool.corpus import TokenizerFile
from skewtool.errors import CorpusError

WriteTokenizer = Callable[..., TokenizerFile]


@pytest.fixture
def load(tmp_path: Path) -> WriteTokenizer:
    """load(vocab, {added token: id}, **more keys of tokenizer.json)"""

    def write(vocab: Mapping[str, int], added: Mapping[str, int], **more: object) -> TokenizerFile:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        tokens = [{"id": number, "content": token, "special": True, **flags} for token, number in added.items()]
        content = {"version": "1.0", "added_tokens": tokens, "model": {"type": "BPE", "vocab": vocab, "merges": []}}
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(content | more), "utf-8")
        return TokenizerFile(path)

    return write


def letters(number: int) -> dict[str, int]:
    return {chr(0x4E00 + i): i for i in range(number)}


def sizes(tokenizer: TokenizerFile) -> tuple[int, int, int]:
    return tokenizer.base_size, tokenizer.size_with_added, tokenizer.num_ids


def test_added_tokens_after_the_vocabulary(load: WriteTokenizer) -> None:
    assert sizes(load(letters(143), {"<a>": 143, "<b>": 144, "<c>": 145})) == (143, 146, 146)


def test_added_tokens_at_sparse_ids_keep_them(load: WriteTokenizer) -> None:
    tokenizer = load(letters(10), {"<a>": 12, "<b>": 15})
    assert sizes(tokenizer) == (10, 12, 16)
    assert [tokenizer.token_text(i) for i in (12, 13, 15)] == ["<a>", "<id 13>", "<b>"]


def test_an_added_token_that_repeats_a_base_token_counts_once(load: WriteTokenizer) -> None:
    assert sizes(load(letters(10), {"\u4e01": 1, "<a>": 10})) == (10, 11, 11)


def test_holes_in_the_vocabulary_are_ids_without_a_token(load: WriteTokenizer) -> None:
    tokenizer = load({"a": 0, "b": 1, "d": 3}, {})
    assert sizes(tokenizer) == (3, 3, 4)
    assert tokenizer.token_text(2) == "<id 2>"


def test_empty_vocabulary(load: WriteTokenizer) -> None:
    assert sizes(load({}, {})) == (0, 0, 0)


def test_fingerprint_is_of_the_vocabulary_alone(load: WriteTokenizer) -> None:
    one = load({"a": 0, "b": 1}, {"<s>": 2}).fingerprint
    assert load({"b": 1, "a": 0}, {"<s>": 2}, truncation=None).fingerprint == one
    assert load({"a": 1, "b": 0}, {"<s>": 2}).fingerprint != one
    assert load({"a": 0, "b": 1}, {"<t>": 2}).fingerprint != one


def test_truncation_and_padding_of_the_file_are_ignored(load: WriteTokenizer) -> None:
    tokenizer = load(
        {"a": 0, "b": 1}, {"<pad>": 2},
        truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        padding={"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 2,
                 "pad_type_id": 0, "pad_token": "<pad>"},
    )  # fmt: skip
    assert tokenizer.encode_batch(["ababa", "b"], add_special_tokens=True).tolist() == [0, 1, 0, 1, 0, 1]


def test_encoding_nothing(load: WriteTokenizer) -> None:
    ids = load({"a": 0}, {}).encode_batch([], add_special_tokens=False)
    assert (ids.size, ids.dtype.name) == (0, "uint32")


def test_tokens_are_shown_as_text(new_dir: Callable[[], Path], make_tokenizer: Callable[..., Path]) -> None:
    tokenizer = TokenizerFile(make_tokenizer(new_dir() / "tokenizer.json"))
    (space_the,) = tokenizer.encode_batch([" the"], add_special_tokens=False)[:1]
    (lone_byte, *_) = tokenizer.encode_batch(["\U0001f642"], add_special_tokens=False)
    assert tokenizer.token_text(int(space_the)).startswith(" ")
    assert "\ufffd" not in tokenizer.token_text(int(lone_byte))  # part of a character: the token as it is stored
    assert tokenizer.token_text(0) == "<bos>"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": 3}', "\x80"])
def test_other_files_are_no_tokenizers(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content, "latin-1")
    with pytest.raises(CorpusError, match="not a tokenizer"):
        TokenizerFile(path)


def test_missing_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no tokenizer file"):
        TokenizerFile(tmp_path / "tokenizer.json")
