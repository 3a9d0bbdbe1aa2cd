"""The Ray engine on a real cluster: two nodes of one CPU each, both on this machine."""

import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import skewtool
from skewtool.cli import main
from skewtool.corpus import ArraySource, Corpus, TokenizerFile, open_corpus
from skewtool.errors import CorpusError, ProfileError
from skewtool.profiling import Profile, merge_parts, profile, profile_on_ray, profile_part

ray = pytest.importorskip("ray", reason="ray is not installed (pip install 'skewtool[ray]')")

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="leftover processes are looked for in /proc"),
    pytest.mark.timeout(240),
]

WINDOWS = (64, 96)
VOCAB_SIZE = 500


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a cluster that is gone afterwards with all its processes."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    with tempfile.TemporaryDirectory(prefix="ray") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)  # a short path, since sockets lie in it; and a mark of all its processes
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = Cluster(initialize_head=True, head_node_args=node)
        try:
            cluster.add_node(**node)
            cluster.wait_for_nodes()
            yield cluster.address
        finally:
            cluster.shutdown()
            left = _ended(folder)
    assert left == []


def _ended(folder: str) -> list[int]:
    """Waits for the processes of a cluster; those that do not end are killed and returned."""
    deadline = time.monotonic() + 30
    while (left := _processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in left:
        os.kill(process, signal.SIGKILL)
    return left


def _processes_of(folder: str) -> list[int]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"RAY_TMPDIR={folder}\0".encode() in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found


@pytest.fixture(scope="module")
def connected(address: str) -> Iterator[None]:
    ray.init(address, log_to_driver=False)
    yield
    ray.shutdown()


def _ids(size: int, seed: int = 5) -> "np.ndarray[Any, np.dtype[np.uint16]]":
    return np.random.default_rng(seed).zipf(1.3, size).clip(max=VOCAB_SIZE - 1).astype(np.uint16)


def _raw(folder: Path) -> Corpus:
    _ids(20_000).tofile(folder / "raw.bin")
    return open_corpus(folder / "raw.bin", dtype="uint16")


def _directory(folder: Path) -> Corpus:
    for name, size in (("a.npy", 9000), ("b.npy", 7), ("c.npy", 0), ("d.npy", 3001)):
        np.save(folder / name, _ids(size, seed=size))
    return open_corpus(folder)


def _json_lines(folder: Path) -> Corpus:
    lines = (json.dumps({"input_ids": ids.tolist()}) for ids in np.array_split(_ids(4000), 40))
    (folder / "ids.jsonl").write_text("\n".join(lines))
    return open_corpus(folder / "ids.jsonl")


def _same_bytes(corpus: Corpus, tasks: int | None, bytes_of: Callable[[Profile], bytes], **options: Any) -> None:
    options = {"windows": WINDOWS, "sample_size": 9, **options}
    assert bytes_of(profile_on_ray(corpus, tasks=tasks, **options)) == bytes_of(profile(corpus, **options))


def test_no_one_at_an_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ProfileError, match=rf"cannot connect to Ray \(127.0.0.1:{port}\): .*refused"):
        profile_on_ray(_raw(tmp_path), address=f"127.0.0.1:{port}")


@pytest.mark.usefixtures("connected")
def test_tasks_of_a_split_a_ray_run_and_a_plain_run_give_the_same_bytes(
    tmp_path: Path, bytes_of: Callable[[Profile], bytes]
) -> None:
    corpus = _raw(tmp_path)
    options: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "windows": WINDOWS, "sample_size": 50}
    progress: list[int] = []
    plain = bytes_of(profile(corpus, **options))
    parts = [profile_part(corpus, task_index=index, task_count=20, **options) for index in range(20)]
    assert bytes_of(merge_parts(parts)) == plain
    assert bytes_of(profile_on_ray(corpus, tasks=20, progress=progress.append, **options)) == plain
    assert sum(progress) == corpus.num_bytes
    assert bytes_of(profile_on_ray(corpus, **options)) == plain


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("tasks", [None, 7])
@pytest.mark.parametrize("make", [_directory, _json_lines])
def test_any_corpus_gives_the_same_bytes(
    make: Callable[[Path], Corpus], tasks: int | None, tmp_path: Path, bytes_of: Callable[[Profile], bytes]
) -> None:
    _same_bytes(make(tmp_path), tasks, bytes_of)


@pytest.mark.usefixtures("connected")
def test_text_is_tokenized_by_the_tasks(
    tmp_path: Path, write_tokenizer: Callable[..., Path], bytes_of: Callable[[Profile], bytes]
) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", 50, added=2)
    (tmp_path / "text.txt").write_text(" ".join(f"w{token % 50}" for token in _ids(3000)))
    corpus = open_corpus(tmp_path / "text.txt", tokenizer=tokenizer)
    _same_bytes(corpus, 2, bytes_of, tokenizer=TokenizerFile(tokenizer))


DIES_ONCE = """
import os, sys
from skewtool.cli import main
from skewtool.profiling import ray_engine

def count_share(version, shared, index, count, marker=sys.argv.pop(1)):
    import ray
    from skewtool.profiling import profile_part, ray_engine
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return ray_engine._count_share(version, shared, index, count)
    job = ray.get(shared[0])
    os.chdir(job.directory)
    profile_part(job.corpus, task_index=index, task_count=count, progress=lambda _: os._exit(1), **job.options)

ray_engine._count_share = count_share
main()
"""
"""The command; the first task that runs on the cluster ends its worker process when it has read a block."""


def test_a_killed_task_of_the_command_is_counted_again(
    address: str, tmp_path: Path, bytes_of: Callable[[Profile], bytes], run_python: Callable[..., Any]
) -> None:
    corpus, output, marker = _raw(tmp_path), tmp_path / "p.safetensors", tmp_path / "marker"
    result = run_python(
        DIES_ONCE, marker, "profile", "raw.bin", "--dtype", "uint16", "-o", output, "--window", "64,96",
        "--engine", "ray", "--ray-tasks", 3, "--json", env={"RAY_ADDRESS": address}, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert marker.exists()
    assert json.loads(result.stdout)["num_tokens"] == corpus.num_tokens
    assert output.read_bytes() == bytes_of(profile(corpus, windows=WINDOWS))


@pytest.fixture
def logged(tmp_path: Path) -> tuple[Corpus, Path]:
    """A corpus of one file, and a file with a line for each time that a range of it is read."""

    @dataclass(frozen=True)
    class Logged(ArraySource):  # a local class is sent to the workers whole
        log: Path = Path()

        def blocks(self, start: int = 0, *arguments: Any, **options: Any) -> Iterator[Any]:
            with self.log.open("a") as file:
                file.write(f"{start}\n")
            yield from super().blocks(start, *arguments, **options)

    corpus, log = _raw(tmp_path), tmp_path / "log"
    (source,) = corpus.sources
    return Corpus((Logged(**{field.name: getattr(source, field.name) for field in fields(source)}, log=log),)), log


@pytest.mark.usefixtures("connected")
def test_an_error_of_the_corpus_is_as_of_a_plain_run_and_not_tried_again(logged: tuple[Corpus, Path]) -> None:
    corpus, log = logged
    with pytest.raises(CorpusError) as plain:
        profile(corpus, vocab_size=3)
    log.unlink()
    with pytest.raises(CorpusError) as on_ray:
        profile_on_ray(corpus, vocab_size=3, tasks=1)
    assert (type(on_ray.value), str(on_ray.value)) == (CorpusError, str(plain.value))
    assert log.read_text() == "0\n"


@pytest.mark.usefixtures("connected")
def test_a_node_that_cannot_read_is_named_after_retries(logged: tuple[Corpus, Path]) -> None:
    corpus, log = logged
    corpus.sources[0].path.unlink()
    node = ray.util.get_node_ip_address()
    with pytest.raises(CorpusError, match=rf"node {node} cannot read the corpus: .*raw\.bin") as error:
        profile_on_ray(corpus, vocab_size=VOCAB_SIZE, tasks=1)
    assert type(error.value) is CorpusError
    assert log.read_text() == "0\n" * 4


@pytest.mark.usefixtures("connected")
def test_a_node_with_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = skewtool.__version__
    monkeypatch.setattr(skewtool, "__version__", "0.0.0")
    with pytest.raises(ProfileError, match=f"has skewtool {here}, this process has 0.0.0; install the same version"):
        profile_on_ray(_raw(tmp_path))


@pytest.mark.usefixtures("connected")
def test_a_failed_command_leaves_no_file(tmp_path: Path) -> None:
    folder, output = tmp_path / "corpus", tmp_path / "p"
    folder.mkdir()
    arguments = ["profile", _directory(folder).files[0], "-o", output, "--engine", "ray", "--vocab-size"]
    result = CliRunner().invoke(main, [*map(str, arguments), "3"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("skewtool: error: ")
    assert "holds ids outside the vocabulary of 3" in result.stderr
    assert list(tmp_path.iterdir()) == [folder]
    assert CliRunner().invoke(main, [*map(str, arguments), str(VOCAB_SIZE)]).exit_code == 0
    assert ray.is_initialized()


@pytest.mark.usefixtures("connected")
def test_an_address_where_ray_is_initialised(address: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="initialised already"):
        profile_on_ray(_raw(tmp_path), address=address)
