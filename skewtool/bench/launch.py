"""Starts the ranks of a job on this machine, as processes, and leaves none behind."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skewtool.bench.job import SEEN
from skewtool.errors import BenchError

__all__ = ["Host", "free_port", "local_hosts", "run_ranks"]

_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""glibc gives large blocks back to the system at every free, and gets them again page by page: a fault for every 4 KiB of
a result, in whichever layout comes first to new memory. Other C libraries ignore these variables."""


class Host:
    """Where a rank runs: a command to put before its own (`ip netns exec NAME`), and variables of its environment."""

    def __init__(self, command: Sequence[str] = (), environment: dict[str, str] | None = None) -> None:
        self.command, self.environment = list(command), dict(environment or {})


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def local_hosts(number: int) -> list[Host]:
    """All on this machine, over loopback."""
    port = str(free_port())
    return [Host(environment={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for _ in range(number)]


def run_ranks(directory: Path, hosts: Sequence[Host], timeout_seconds: float = 1800) -> list[Any]:
    """One rank on each host, for the job in `directory`: what each of them saw, by rank.

    Errors: BenchError with the last lines of the first rank that failed, or after the timeout. Whatever happens, no
    process is left.
    """
    threads = str(max(1, (os.cpu_count() or 1) // len(hosts)))
    ranks: list[subprocess.Popen[bytes]] = []
    logs = [tempfile.TemporaryFile() for _ in hosts]  # noqa: SIM115
    try:
        for rank, host in enumerate(hosts):
            own = {"OMP_NUM_THREADS": threads, "RANK": str(rank), "WORLD_SIZE": str(len(hosts))}
            command = [*host.command, sys.executable, "-m", "skewtool.bench.rank", str(directory)]
            ranks.append(
                subprocess.Popen(
                    command, env=os.environ | _KEEP_MEMORY | own | host.environment, stdout=logs[rank],
                    stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
        _wait(ranks, logs, time.monotonic() + timeout_seconds)
    finally:
        for each in ranks:
            if each.poll() is None:
                each.kill()
        for each in ranks:
            each.wait()
        for log in logs:
            log.close()
    results: list[Any] = json.loads((directory / SEEN).read_text())
    return results


def _wait(ranks: list[subprocess.Popen[bytes]], logs: list[Any], deadline: float) -> None:
    while any(each.poll() is None for each in ranks):
        for rank, each in enumerate(ranks):
            if each.poll():
                raise BenchError(f"rank {rank} of the bench failed: {_last_lines(logs[rank])}")
        if time.monotonic() > deadline:
            raise BenchError("the ranks of the bench did not end in time; try fewer --steps or layouts")
        time.sleep(0.05)
    for rank, each in enumerate(ranks):
        if each.returncode:
            raise BenchError(f"rank {rank} of the bench failed: {_last_lines(logs[rank])}")


def _last_lines(log: Any, number: int = 3) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-number:]) or "without a word"
