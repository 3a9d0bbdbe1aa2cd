"""gzip and zstd: what is inside, several frames, and files that are cut off or damaged."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError

LINE = b'{"tokens": [1, 2, 3]}\n'


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)  # without a checksum


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_several_frames_are_one_file(
    compress: Callable[[bytes], bytes], tmp_path: Path, ids_of: Callable[..., list[int]]
) -> None:
    (tmp_path / "a").write_bytes(compress(LINE) + compress(b"") + compress(LINE * 2))
    assert ids_of(open_corpus(tmp_path / "a")) == [1, 2, 3] * 3


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_every_cut_is_noticed(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    content = compress(b"".join(b'{"tokens": [%d]}\n' % number for number in range(50)))
    for num_bytes in range(1, len(content)):
        (tmp_path / "a").write_bytes(content[:num_bytes])
        with pytest.raises(CorpusError):
            list(open_corpus(tmp_path / "a").blocks())


def test_a_damaged_file_is_not_passed_over_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINE))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINE)[:15])
    with pytest.raises(CorpusError, match=r"b\.jsonl\.gz cannot be read"):
        open_corpus(tmp_path)


@pytest.mark.parametrize(("compress", "name"), [(gzip.compress, "gzip"), (zstd, "zstd")])
def test_other_content_must_be_decompressed(compress: Callable[[bytes], bytes], name: str, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(compress(b"\0\1\2\3" * 10))
    with pytest.raises(CorpusError, match=f"is {name}, .*decompress it first"):
        open_corpus(tmp_path / "a.bin", dtype="uint16")
    (tmp_path / "a.bin").write_bytes(compress(b""))
    with pytest.raises(CorpusError, match="is empty"):
        open_corpus(tmp_path / "a.bin")
