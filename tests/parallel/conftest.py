"""Runs a function on several gloo ranks of this machine."""

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

Ranks = Callable[..., None]


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def _rank(rank: int, world: int, port: int, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    import datetime

    import torch

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
    try:
        function(rank, world, *arguments)
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="session")
def on_ranks() -> Ranks:
    """on_ranks(world, function, *arguments): function(rank, world, *arguments) on each rank; its failure is the test's."""

    def run(world: int, function: Callable[..., None], *arguments: Any) -> None:
        mp.spawn(_rank, (world, _free_port(), function, arguments), nprocs=world)  # type: ignore[no-untyped-call,attr-defined]

    return run
