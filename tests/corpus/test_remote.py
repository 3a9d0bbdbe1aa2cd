"""Remote corpora: the same ids and profiles as local ones, read by ranges, with errors that name the URL."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from upath import UPath

from skewtool.corpus import Corpus
from skewtool.profiling import Profile, profile

DOCUMENTS = [[5, 6, 70_000], [1], [7, 8, 9, 2, 100_000], [4, 4], [128_000, 3]]
IDS = [token for document in DOCUMENTS for token in document]

Reads = list[tuple[str, int]]


class SpyFileSystem(MemoryFileSystem):
    """memory:// under another name, with a record of what was read: file and number of bytes of each request."""

    protocol = "spy"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    reads: Reads = []
    failure: Exception | None = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("spy://", "memory://")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        if self.failure is not None:
            raise self.failure
        content = bytes(super().cat_file(path, start, end))
        self.reads.append((path.rpartition("/")[2], len(content)))
        return content


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """What was read of spy://."""
    fsspec.register_implementation("spy", SpyFileSystem, clobber=True)
    monkeypatch.setattr(SpyFileSystem, "reads", [])
    monkeypatch.setattr(SpyFileSystem, "store", {})
    monkeypatch.setattr(SpyFileSystem, "pseudo_dirs", [""])
    yield SpyFileSystem.reads
    assert not any(thread.name == "skewtool read ahead" for thread in threading.enumerate())


@pytest.fixture
def upload(reads: Reads) -> Callable[[Path], str]:
    """upload(folder): its files in spy:///bucket/folder; returns that URL."""

    def put(folder: Path) -> str:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                SpyFileSystem().pipe_file(f"/bucket/{folder.name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"spy:///bucket/{folder.name}"

    return put


def saved(made: Profile, folder: Path) -> bytes:
    made.save(folder / "p.safetensors")
    content = (folder / "p.safetensors").read_bytes()
    (folder / "p.safetensors").unlink()
    return content


def test_every_format_gives_the_same_ids_and_profile(
    layout: str, tmp_path: Path, write_as: Callable[..., Path], open_as: Callable[..., Corpus],
    ids_of: Callable[..., list[int]], upload: Callable[[Path], str],
) -> None:  # fmt: skip
    (tmp_path / "corpus").mkdir()
    path = write_as(layout, tmp_path / "corpus", DOCUMENTS)
    url = upload(tmp_path / "corpus")
    if path.is_file():
        url += f"/{path.name}"
    local, remote = open_as(layout, path), open_as(layout, url)
    assert ids_of(remote) == ids_of(remote, block_tokens=3) == IDS
    assert [source.name for source in remote.sources] == [source.name for source in local.sources]
    assert (remote.num_tokens, remote.num_documents, remote.notes) == (local.num_tokens, local.num_documents, local.notes)
    assert all(file.startswith("spy:///bucket/corpus/") for file in remote.files)
    options: dict[str, Any] = {"windows": (3,), "sample_size": 2}
    assert saved(profile(remote, workers=2, **options), tmp_path) == saved(profile(local, **options), tmp_path)
    if remote.num_tokens is not None:
        assert ids_of(remote.part(0, 0.4)) == ids_of(local.part(0, 0.4))
    given = next((each for each in sorted((tmp_path / "corpus").iterdir()) if each == path), tmp_path / "corpus")
    assert ids_of(open_as(layout, UPath(url))) == ids_of(open_as(layout, given))
    assert ids_of(open_as(layout, f"file://{path}")) == IDS
