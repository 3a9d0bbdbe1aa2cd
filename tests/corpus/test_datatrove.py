"""datatrove's files: metadata, index and size must agree; unshuffled leftovers are not counted twice."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError


def write(path: Path, ids: list[int], width: int = 4, metadata: str | None = None, ends: list[int] | None = None) -> Path:
    np.array(ids, f"<u{width}").tofile(path)
    Path(f"{path}.metadata").write_text(f"gpt2|{width}\n{len(ids)}\n{len(ids)} T" if metadata is None else metadata)
    np.array([len(ids)] if ends is None else ends, "<u8").tofile(f"{path}.index")
    return path


@pytest.mark.parametrize("width", [2, 4])
def test_the_width_is_in_the_metadata(width: int, tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "00000_unshuffled.ds", [7, 300, 2], width, ends=[1, 3])
    Path(f"{path}.loss").write_bytes(b"\1\1\0")
    for opened in (path, Path(f"{path}.metadata"), tmp_path):
        corpus = open_corpus(opened)
        assert (corpus.format, ids_of(corpus), corpus.num_documents) == ("datatrove", [7, 300, 2], 2)
        assert (corpus.sources[0].name, corpus.ignored_files) == ("00000_unshuffled.ds", ())
    assert any("tokenized by gpt2" in note for note in corpus.notes)
    with pytest.raises(CorpusError, match="but --dtype says uint8"):
        open_corpus(path, dtype="uint8")


def test_an_unknown_tokenizer_has_two_bars(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "a.ds", [7, 70_000], metadata="Unknown Tokenizer|4|4\n2\n2 T")
    assert ids_of(open_corpus(path)) == [7, 70_000]


@pytest.mark.parametrize(("options", "match"), [
    ({"metadata": "gpt2|4\n4\n4 T"}, "a.ds.metadata promises 4 uint32 tokens"),
    ({"metadata": "gpt2|2\n3\n3 T"}, "promises 3 uint16 tokens"),
    ({"ends": [1, 2]}, "ends at token 2, but a.ds.metadata promises 3"),
    ({"ends": [2, 1, 3]}, "document 1 ends at token 1, before"),
])  # fmt: skip
def test_what_contradicts_itself(options: dict[str, object], match: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=match):
        open_corpus(write(tmp_path / "a.ds", [7, 300, 2], **options))  # type: ignore[arg-type]


def test_without_metadata_the_index_is_no_corpus_of_its_own(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = write(tmp_path / "a.ds", [7, 70_000, 2])
    Path(f"{path}.metadata").unlink()
    with pytest.raises(CorpusError, match=r"--dtype .*a.ds.index says 3 tokens, so 4 bytes each"):
        open_corpus(tmp_path)
    assert ids_of(open_corpus(tmp_path, dtype="uint32")) == [7, 70_000, 2]
    with pytest.raises(CorpusError, match=r"a.ds.index promises 3 uint16 tokens"):
        open_corpus(tmp_path, dtype="uint16")


def test_the_total_of_a_merge_has_no_data(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    write(tmp_path / "000_all.ds", [7, 8])
    total = tmp_path / "all.ds.metadata"
    total.write_text("gpt2|4\n2\n2 T")
    assert ids_of(open_corpus(tmp_path)) == [7, 8]
    with pytest.raises(CorpusError, match="not there"):
        open_corpus(total)


@pytest.mark.parametrize("shuffled", ["00000_00000_shuffled.ds", "00000_00001_chunk_shuffled.ds", "000_all.ds"])
def test_unshuffled_leftovers_are_counted_twice(
    shuffled: str, tmp_path: Path, ids_of: Callable[..., list[int]]
) -> None:
    write(tmp_path / "00000_unshuffled.ds", [1, 2, 3])
    write(tmp_path / "00001_unshuffled.ds", [4, 5])
    assert ids_of(open_corpus(tmp_path)) == [1, 2, 3, 4, 5]  # nothing was shuffled yet
    write(tmp_path / shuffled, [3, 1, 2, 5, 4])
    with pytest.raises(CorpusError, match=r"00000_unshuffled.ds is left over.*--allow counted-twice"):
        open_corpus(tmp_path)
    corpus = open_corpus(tmp_path, allow=["counted-twice"])
    assert (ids_of(corpus), corpus.dropped) == ([3, 1, 2, 5, 4], {"counted-twice": 5})
