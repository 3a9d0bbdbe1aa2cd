"""Runs functions on several gloo ranks of this machine. The processes live as long as the tests: importing torch takes
longer than most of them."""

import datetime
import multiprocessing as mp
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

Ranks = Callable[..., None]

_ROOT = str(Path(__file__).parents[2])
_OTHERS_MAY_TAKE = 5.0
"""Seconds that other ranks get to end after the first that failed."""


def _serve(rank: int, root: str, jobs: Connection) -> None:
    """Does jobs, one after the other, until there are no more."""
    sys.path.insert(0, root)  # functions arrive by name
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    while True:
        job = jobs.recv()
        if job is None:
            return
        try:
            _do(rank, *job)
            jobs.send(None)
        except BaseException:
            jobs.send(traceback.format_exc())


def _do(rank: int, world: int, store: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """One job, in a process group of its own."""
    import torch.distributed as dist

    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timeout)
    try:
        function(rank, world, *arguments)
    finally:
        dist.destroy_process_group()


class _Processes:
    """Processes that wait for jobs, as many as the largest job so far needed."""

    def __init__(self) -> None:
        self.running: list[tuple[mp.process.BaseProcess, Connection]] = []

    def start(self, number: int) -> None:
        context = mp.get_context("spawn")
        for rank in range(len(self.running), number):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, _ROOT, there), daemon=True)
            process.start()
            there.close()
            self.running.append((process, here))

    def run(self, world: int, store: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.start(world)
        waiting = {}
        for rank in range(world):
            jobs = self.running[rank][1]
            jobs.send((world, store, function, arguments))
            waiting[jobs] = rank
        failures = []
        until = None
        while waiting and (until is None or time.monotonic() < until):
            for ended in wait(list(waiting), None if until is None else until - time.monotonic()):
                assert isinstance(ended, Connection)
                rank = waiting.pop(ended)
                try:
                    failure = ended.recv()
                except EOFError:
                    failure = "The process ended.\n"
                if failure is not None:
                    failures.append(f"rank {rank} of {world}:\n{failure}")
                    until = until or time.monotonic() + _OTHERS_MAY_TAKE
        if failures:
            self.stop()
            failures.sort(key=lambda text: "Connection closed by peer" in text)  # the cause before its consequences
            pytest.fail("\n".join(failures), pytrace=False)

    def stop(self) -> None:
        for process, jobs in self.running:
            process.kill()
            process.join()
            jobs.close()
        self.running = []


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """on_ranks(world, function, *arguments): function(rank, world, *arguments) on each rank; its failure is the test's.

    Ranks are reused by later tests: undo what is patched.
    """
    processes = _Processes()

    def run(world: int, function: Callable[..., None], *arguments: Any) -> None:
        processes.run(world, str(tmp_path_factory.mktemp("ranks") / "store"), function, arguments)

    yield run
    processes.stop()
