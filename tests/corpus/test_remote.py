"""Remote corpora: the same ids and profiles as local ones, read by ranges, with errors that name the URL."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from upath import UPath

from skewtool.cli import main
from skewtool.corpus import Corpus, open_corpus
from skewtool.errors import CorpusError, ProfileError
from skewtool.profiling import Checkpoints, Profile, merge_parts, profile, profile_part

DOCUMENTS = [[5, 6, 70_000], [1], [7, 8, 9, 2, 100_000], [4, 4], [128_000, 3]]
IDS = [token for document in DOCUMENTS for token in document]

Reads = list[tuple[str, int]]


class SpyFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """memory:// under another name, with a record of what was read: file and number of bytes of each request."""

    protocol = "spy"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    reads: ClassVar[Reads] = []
    failure: Exception | None = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("spy://", "memory://").replace("plain://", "memory://")))

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


LARGE = ("raw", "npy", "megatron", "arrow", "arrow stream", "parquet")
@pytest.mark.parametrize("kind", ["llmc", "multimodal", "fortran", "fortran in npz"])
def test_other_layouts(
    kind: str, tmp_path: Path, write_llmc: Callable[..., Path], write_megatron: Callable[..., Path],
    ids_of: Callable[..., list[int]], upload: Callable[[Path], str],
) -> None:  # fmt: skip
    (tmp_path / "corpus").mkdir()
    array = np.asfortranarray(np.arange(60, dtype=np.uint16).reshape(4, 15))
    if kind == "llmc":
        write_llmc(tmp_path / "corpus" / "a.bin", range(50))
    elif kind == "multimodal":
        write_megatron(tmp_path / "corpus" / "a", [[1, 2], [200, 201], [3], [4, 5]], modes=bytes([0, 1, 0, 0]))
    elif kind == "fortran":
        np.save(tmp_path / "corpus" / "a.npy", array)
    else:
        np.savez(tmp_path / "corpus" / "a.npz", array)
    allow = ["images"] if kind == "multimodal" else []
    local, remote = (open_corpus(where, allow=allow) for where in (tmp_path / "corpus", upload(tmp_path / "corpus")))
    assert ids_of(remote) == ids_of(local)
    assert ids_of(remote.part(0.3, 0.8)) == ids_of(local.part(0.3, 0.8))
    assert saved(profile(remote, windows=(4,), workers=2), tmp_path) == saved(profile(local, windows=(4,)), tmp_path)


NUM_TOKENS = 6_000_000
FEW = 5 << 20
"""Bytes beside those of the ids: looks at the beginning and the end, headers, footers, row groups that a cut lies in."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with one file of 24 MB for each format of which parts can be read."""
    ids = np.random.default_rng(0).integers(0, 60_000, NUM_TOKENS).astype("<u4")
    folders = {name: tmp_path_factory.mktemp("large") for name in LARGE}
    ids.tofile(folders["raw"] / "a.bin")
    np.save(folders["npy"] / "a.npy", ids)
    lengths = np.full(6000, 1000, "<i4")
    head = b"MMIDIDX\0\0" + np.array([1], "<u8").tobytes() + b"\4" + np.array([6000, 6001], "<u8").tobytes()
    starts = (np.cumsum(lengths, dtype="<i8") - lengths) * 4
    (folders["megatron"] / "a.idx").write_bytes(
        head + lengths.tobytes() + starts.tobytes() + np.arange(6001, dtype="<i8").tobytes()
    )
    ids.tofile(folders["megatron"] / "a.bin")
    ends = np.arange(0, NUM_TOKENS + 1, 1000, dtype=np.int32)
    documents = pa.ListArray.from_arrays(pa.array(ends), pa.array(ids.view("<i4")))
    table = pa.table({"n": np.arange(6000), "input_ids": documents})
    for name, new in (("arrow", pa.ipc.new_file), ("arrow stream", pa.ipc.new_stream)):
        with new(str(folders[name] / "a.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=500)
    options: dict[str, Any] = {"row_group_size": 1000, "data_page_size": 1 << 16, "use_dictionary": False}
    pq.write_table(table, folders["parquet"] / "a.parquet", **options)
    return folders


@pytest.mark.parametrize("format", LARGE)
def test_a_task_reads_about_its_share(
    format: str, large: dict[str, Path], upload: Callable[[Path], str], reads: Reads, tmp_path: Path
) -> None:
    url = upload(large[format])
    corpus = open_corpus(url, dtype="uint32" if format == "raw" else None)
    opened = sum(size for _, size in reads)
    assert corpus.format == format.partition(" ")[0]
    reads.clear()
    part = profile_part(corpus, task_index=1, task_count=4, vocab_size=60_000)
    assert part.tally.num_tokens == pytest.approx(NUM_TOKENS / 4, rel=0.01)
    shared = sum(size for _, size in reads)
    assert max(opened, shared - NUM_TOKENS) < FEW
    assert len(reads) < 40


def test_detection_reads_the_beginning(large: dict[str, Path], upload: Callable[[Path], str], reads: Reads) -> None:
    url = upload(large["raw"])
    with pytest.raises(CorpusError, match=r"spy:///bucket/.*a\.bin has no header .* pass --dtype"):
        open_corpus(url)
    assert sum(size for _, size in reads) < 1 << 20


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Five files of one id each, one of them hidden."""
    for number, name in enumerate(["a/x.npy", "a-b/x.npy", "b/c/y.npy", "b/.hidden.npy", "b/x.npy"]):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "tree" / name, np.array([number], np.uint16))
    return tmp_path / "tree"


@pytest.mark.parametrize("pattern", [
    "", "*/x.npy", "**/*.npy", "[ab]", "{a,b/c}/?.npy", "{b,a}/x.npy", "b/c", "b/c/", "a*",
])  # fmt: skip
def test_patterns_mean_what_they_do_locally(
    pattern: str, tree: Path, upload: Callable[[Path], str], ids_of: Callable[..., list[int]]
) -> None:
    local, remote = open_corpus(tree / pattern), open_corpus(f"{upload(tree)}/{pattern}")
    assert [source.name for source in remote.sources] == [source.name for source in local.sources]
    assert ids_of(remote) == ids_of(local)


def test_a_mixture_is_relative_to_its_file(
    tree: Path, upload: Callable[[Path], str], ids_of: Callable[..., list[int]]
) -> None:
    (tree / "m").mkdir()
    parts = [{"path": path, "weight": 1} for path in ("../a/x.npy", "deeper/z.npy", str(tree / "b"))]
    (tree / "m" / "mix.json").write_text(json.dumps({"mixture": parts}))
    (tree / "m" / "deeper").mkdir()
    np.save(tree / "m" / "deeper" / "z.npy", np.array([9], np.uint16))
    expected = ids_of(open_corpus(tree / "m" / "mix.json"))
    url = upload(tree)
    parts[2]["path"] = f"{url}/b"
    (tree / "m" / "mix.json").write_text(json.dumps({"mixture": parts}))
    upload(tree)
    assert ids_of(open_corpus(f"{url}/m/mix.json")) == ids_of(open_corpus(tree / "m" / "mix.json")) == expected


def test_what_is_not_there(tree: Path, upload: Callable[[Path], str]) -> None:
    url = upload(tree)
    for name in ("gone.npy", "gone/*.npy", "{a/x,gone}.npy"):
        with pytest.raises(CorpusError, match=r"(no file or directory|nothing matches) spy:///bucket/tree/.*gone"):
            open_corpus(f"{url}/{name}")
    with pytest.raises(CorpusError, match="no file or directory memory://nowhere"):
        open_corpus("memory://nowhere")


@pytest.mark.parametrize(("failure", "match"), [
    (PermissionError("Forbidden"), r"a\.bin may not be read with the credentials at hand: Forbidden"),
    (FileNotFoundError("NoSuchKey"), r"there is no file spy:///bucket/.*a\.bin"),
    (OSError("connection reset\nby peer"), r"a\.bin cannot be read: connection reset$"),
    (RuntimeError(), r"a\.bin cannot be read: RuntimeError"),
])  # fmt: skip
def test_failures_while_reading_are_one_line_with_the_url(
    failure: Exception, match: str, large: dict[str, Path], upload: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = upload(large["raw"])
    corpus = open_corpus(url, dtype="uint32")
    monkeypatch.setattr(SpyFileSystem, "failure", failure)
    for action in (lambda: profile(corpus), lambda: list(corpus.blocks()), lambda: open_corpus(url, dtype="uint32")):
        with pytest.raises(CorpusError, match=match) as raised:
            action()
        assert "\n" not in str(raised.value)


def test_a_file_that_becomes_shorter(tree: Path, upload: Callable[[Path], str]) -> None:
    corpus = open_corpus(upload(tree) + "/a/x.npy")
    SpyFileSystem().pipe_file("/bucket/tree/a/x.npy", b"short")
    with pytest.raises(CorpusError, match=r"spy:///bucket/tree/a/x\.npy: asked for bytes .* become shorter"):
        profile(corpus)


@pytest.mark.parametrize(("url", "match"), [
    ("nonsense://bucket/a.npy", "nonsense://bucket/a.npy cannot be opened: .*nonsense"),
    ("s3://bucket/a.npy", "s3://bucket/a.npy needs the driver of its store: .*s3fs"),
])  # fmt: skip
def test_stores_that_nothing_is_known_of(url: str, match: str) -> None:
    with pytest.raises(CorpusError, match=match):
        open_corpus(url)


def test_a_url_in_a_path_of_pathlib() -> None:
    with pytest.raises(CorpusError, match=r"memory:/bucket/a\.npy has lost a slash in a .*; give the URL as text"):
        open_corpus(Path("memory://bucket/a.npy"))


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "upath", None)
    monkeypatch.delitem(sys.modules, "skewtool.corpus.remote", raising=False)
    with pytest.raises(CorpusError, match=r"pip install 'skewtool\[remote\]'"):
        open_corpus("memory://bucket/a.npy")


def test_parts_of_tasks_make_the_profile(
    large: dict[str, Path], upload: Callable[[Path], str], tmp_path: Path
) -> None:
    corpus = open_corpus(upload(large["npy"]))
    parts = [profile_part(corpus, task_index=index, task_count=3, vocab_size=60_000, workers=2) for index in range(3)]
    local = profile(open_corpus(large["npy"]), vocab_size=60_000)
    assert saved(merge_parts(parts), tmp_path) == saved(local, tmp_path)


def test_a_run_goes_on_only_with_the_same_file(
    large: dict[str, Path], upload: Callable[[Path], str], tmp_path: Path
) -> None:
    url = upload(large["npy"])
    profile(open_corpus(url), vocab_size=60_000, checkpoints=Checkpoints(tmp_path / "kept", 0))
    again = Checkpoints(tmp_path / "kept", 0)
    profile(open_corpus(url), vocab_size=60_000, checkpoints=again)
    assert again.num_tokens == NUM_TOKENS
    upload(large["npy"])  # the same bytes, written again
    with pytest.raises(ProfileError, match=r"spy:///bucket/.*a\.npy has changed since"):
        profile(open_corpus(url), vocab_size=60_000, checkpoints=Checkpoints(tmp_path / "kept", 0))


class LaterFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """An asynchronous driver of one file, as that of S3: it knows its methods only as coroutines, and no further options."""

    protocol = "later"
    content = np.arange(1000, dtype="<u4").tobytes()

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        if not path.endswith("a.bin"):
            raise FileNotFoundError(path)
        return {"name": path, "size": len(self.content), "type": "file", "ETag": "1"}

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        return self.content[start:end]


class PlainFileSystem(SpyFileSystem):
    """A driver without ranges of its own: fsspec's opens a file and reads in it."""

    protocol = "plain"
    cat_file = AbstractFileSystem.cat_file
    options: ClassVar[list[dict[str, Any]]] = []

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        self.options.append(options)
        return super()._open(path, mode)


def test_drivers_of_both_kinds(ids_of: Callable[..., list[int]], reads: Reads) -> None:
    fsspec.register_implementation("later", LaterFileSystem, clobber=True)
    fsspec.register_implementation("plain", PlainFileSystem, clobber=True)
    assert ids_of(open_corpus("later://bucket/a.bin", dtype="uint32")) == list(range(1000))
    SpyFileSystem().pipe_file("/bucket/a.bin", LaterFileSystem.content)
    assert ids_of(open_corpus("plain:///bucket/a.bin", dtype="uint32")) == list(range(1000))
    assert {options["cache_type"] for options in PlainFileSystem.options} == {"none"}


def test_commands_take_urls(upload: Callable[[Path], str], tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    np.save(tmp_path / "corpus" / "a.npy", np.random.default_rng(0).integers(0, 300, 20_000).astype(np.uint16))
    url = upload(tmp_path / "corpus")
    runner = CliRunner()
    written = []
    for name, corpus in (("local", str(tmp_path / "corpus")), ("remote", url)):
        output = tmp_path / f"{name}.safetensors"
        common = ["profile", corpus, "-o", str(output), "--vocab-size", "300", "--window", "100"]
        assert runner.invoke(main, [*common, "--resume"]).exit_code == 0
        written.append(output.read_bytes())
        done = runner.invoke(main, [*common, "--task-index", "0", "--task-count", "2", "--json"])
        written.append(Path(json.loads(done.stdout)["part"]).read_bytes())
    assert written[:2] == written[2:]
    told = json.loads(runner.invoke(main, ["inspect", f"{url}/a.npy", "--json"]).stdout)
    assert (told["format"], told["num_tokens"], told["files"]) == ("npy", 20_000, [f"{url}/a.npy"])
    judged = runner.invoke(main, ["skew", "--corpus", url, "--shards", "4", "--part", "0:5%", "--tokens-per-rank", "100"])
    assert judged.exit_code == 0, judged.stderr
    failed = runner.invoke(main, ["profile", f"{url}/gone", "-o", str(tmp_path / "x")])
    assert (failed.exit_code, failed.stderr) == (1, f"skewtool: error: there is no file or directory {url}/gone\n")
