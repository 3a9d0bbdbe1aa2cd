"""`profile_on_ray`: counts a corpus on a Ray cluster, and gives the same bytes as a run on this machine.

Each Ray task counts the share of one task of a static split (`skewtool.profiling.profile_part`) with one thread, and its
part is added up here as soon as it is there; so this process holds the sum and one part, whatever the size of the corpus.
Ray runs a task again when its worker or node dies, and when a file cannot be opened or read where it ran. What is wrong
with the corpus itself is the same on every node, and ends the run at once.

Ray is imported only when this engine is used.
"""

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from skewtool.corpus import Corpus, TokenizerFile
from skewtool.corpus.source import Progress
from skewtool.errors import CorpusError, ProfileError, SkewtoolError
from skewtool.profiling.local import num_spans, profile_of, profile_part
from skewtool.profiling.part import Part, add_parts
from skewtool.profiling.places import num_bytes
from skewtool.profiling.profile import Profile
from skewtool.profiling.setup import DEFAULT_WINDOWS, checked_setup

__all__ = ["profile_on_ray"]

_TASKS_PER_CPU = 4  # so that slow nodes take fewer, and the last tasks end nearly together
_RETRIES = 3


@dataclass(frozen=True)
class _Job:
    """What all tasks share. `options`: those of `profile_part`, the same for all tasks; `directory`: where relative paths
    begin."""

    corpus: Corpus
    options: Mapping[str, Any]
    directory: Path


class _UnreadableThere(CorpusError):
    """A file that one node cannot open or read; another node may, or the same one later."""


def profile_on_ray(
    corpus: Corpus,
    *,
    tasks: int | None = None,
    address: str | None = None,
    vocab_size: int | None = None,
    tokenizer: TokenizerFile | None = None,
    windows: Sequence[int] = DEFAULT_WINDOWS,
    sample_size: int = 1024,
    seed: int = 0,
    allow: Collection[str] = (),
    progress: Progress | None = None,
) -> Profile:
    """Counts a corpus with tasks on a Ray cluster; the options and the profile are those of `skewtool.profile`.

    `tasks`: how many (by default four for each CPU of the cluster, fewer for a small corpus); the result does not depend
    on it. `address`: of the cluster; by default Ray's own rule, that is RAY_ADDRESS, else a cluster that runs on this
    machine, else one that is started here. Where Ray is initialised already, that connection is used and left as it is;
    otherwise it is closed at the end. All nodes need the same version of skewtool and the corpus under the same paths.
    `progress` is called with the bytes of each task that has finished.

    Errors: as `profile`, of the bad span that is met first; CorpusError, which names the node, when a node cannot read
    the corpus; ProfileError when Ray is missing or cannot be reached, when a node has another version, and when a task
    still fails after its retries.
    """
    if tasks is not None and tasks < 1:
        raise ProfileError(f"tasks must be at least 1, got {tasks}")
    options: dict[str, Any] = {
        "vocab_size": vocab_size, "tokenizer": tokenizer, "windows": tuple(windows), "sample_size": sample_size,
        "seed": seed, "allow": tuple(allow),
    }  # fmt: skip
    setup = checked_setup(corpus, **options)
    with _connection(address):
        most = _TASKS_PER_CPU * _num_cpus()
        count = tasks or max(1, min(most, num_spans(corpus, setup.windows)))
        return profile_of(corpus, _sum_of_tasks(_Job(corpus, options, Path.cwd()), count, progress))


@contextmanager
def _connection(address: str | None) -> Iterator[None]:
    """Ray as it is, or connected here and closed again."""
    try:
        import ray
    except ImportError:
        raise ProfileError("the Ray engine needs ray: pip install 'skewtool[ray]'") from None
    if ray.is_initialized():
        if address is not None:
            raise ProfileError(f"Ray is initialised already: give no address ({address}), or call ray.shutdown() first")
        yield
        return
    with _signal_handler_kept():
        try:
            _connect(address)
            yield
        finally:
            ray.shutdown()


def _connect(address: str | None) -> None:
    import ray

    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _reach(where)
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise ProfileError(f"cannot connect to Ray ({where}): {_one_line(error)}") from None


@contextmanager
def _signal_handler_kept() -> Iterator[None]:
    """ray.init replaces the handler of SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _reach(address: str) -> None:
    """Asks whether anyone listens at HOST:PORT, which Ray itself takes minutes to find out. Errors: OSError."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _num_cpus() -> int:
    import ray

    count = int(ray.cluster_resources().get("CPU", 0))
    if not count:
        warnings.warn("the Ray cluster has no CPU now: tasks wait until it gets one", stacklevel=2)
    return max(1, count)


def _sum_of_tasks(job: _Job, count: int, progress: Progress | None) -> Part:
    """Runs all tasks and adds their parts up as they finish; after an error, those that are left are cancelled."""
    import ray

    task = ray.remote(
        num_cpus=1, max_retries=_RETRIES, retry_exceptions=[_UnreadableThere], scheduling_strategy="SPREAD"
    )(_count_share)  # fmt: skip
    shared = [ray.put(job)]  # in a list Ray hands on the reference, and each task checks the version before it unpickles
    waiting = {task.remote(_version(), shared, index, count): index for index in range(count)}
    total: Part | None = None
    if progress is not None:
        progress(0)
    try:
        while waiting:
            # Parts stay where they were made until their turn.
            (done, *_), _ = ray.wait(list(waiting), num_returns=1, fetch_local=False)
            part = _part_of(done, f"task {waiting.pop(done)} of {count}")
            total = add_parts([part] if total is None else [total, part])
            if progress is not None:
                progress(num_bytes(job.corpus, part.ranges))
    finally:
        for each in waiting:
            ray.cancel(each)
    assert total is not None
    return total


def _part_of(reference: Any, name: str) -> Part:
    """What a task has returned; its error as it would have been here."""
    import ray

    try:
        part: Part = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, _UnreadableThere):
            raise CorpusError(str(cause)) from None
        if isinstance(cause, SkewtoolError | MemoryError | OSError):
            raise cause from None
        if "failed to import on the worker" in str(cause):
            why = str(cause).strip().splitlines()[-1].strip()
            raise ProfileError(f"a node cannot load skewtool ({why}); install skewtool {_version()} on all nodes") from None
        raise
    except ray.exceptions.RayError as error:
        raise ProfileError(f"{name} failed on the Ray cluster, also after {_RETRIES} retries: {_one_line(error)}") from None
    return part


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _version() -> str:
    return str(import_module("skewtool").__version__)  # an import statement would be a circle


def _count_share(version: str, shared: Sequence[Any], index: int, count: int) -> Part:
    """The task: runs in a worker process of any node."""
    import ray

    node = ray.util.get_node_ip_address()
    if _version() != version:
        raise ProfileError(
            f"node {node} has skewtool {_version()}, this process has {version}; install the same version on all nodes"
        )
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # a task has one CPU, and a tokenizer would take all
    job: _Job = ray.get(shared[0])
    try:
        with chdir(job.directory) if job.directory.is_dir() else nullcontext():
            return profile_part(job.corpus, task_index=index, task_count=count, **job.options)
    except (OSError, CorpusError) as error:
        if not _is_of_the_system(error):
            raise
        raise _UnreadableThere(
            f"node {node} cannot read the corpus: {error}; every node must find it under the same path"
        ) from None


def _is_of_the_system(error: Exception) -> bool:
    """Whether the operating system failed. Damaged files can be OSErrors, too (of gzip, of pyarrow), without a number."""
    met = error if isinstance(error, OSError) else error.__context__
    return isinstance(met, OSError) and (met.errno is not None or isinstance(met, FileNotFoundError | PermissionError))
