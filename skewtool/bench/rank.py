"""One rank of a bench: `python -m skewtool.bench.rank DIRECTORY`, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.

Rank 0 writes what all ranks saw to the directory. Also what torchrun starts, through `skewtool bench`.
"""

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from skewtool.bench.calibration import calibrate
from skewtool.bench.job import SEEN, Job
from skewtool.bench.measure import measure

__all__ = ["main", "run_rank"]

_TIMEOUT = datetime.timedelta(minutes=10)


def run_rank(directory: Path) -> list[Any] | None:
    """Joins the group and measures; on rank 0 what every rank saw, by rank, ready for JSON, elsewhere None.

    A job without layouts is a calibration.
    """
    job, batches, maps = Job.load(directory)
    device = torch.device("cpu")
    if job.backend == "nccl":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", os.environ["RANK"])))
        torch.cuda.set_device(device)
    dist.init_process_group(job.backend, timeout=_TIMEOUT)
    try:
        rank = dist.get_rank()
        seen: dict[str, Any] = calibrate(device)
        if job.layouts:
            seen = {name: each.to_json() for name, each in measure(job, batches, maps, rank, device).items()}
        everyone: list[Any] | None = [None] * dist.get_world_size() if rank == 0 else None
        dist.gather_object(seen, everyone)
        return everyone
    finally:
        dist.destroy_process_group()


def main() -> None:
    """Runs the rank; rank 0 leaves the results in the directory, for the process that started it and made the directory."""
    directory = Path(sys.argv[1])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    everyone = run_rank(directory)
    if everyone is not None:
        (directory / SEEN).write_text(json.dumps(everyone))


if __name__ == "__main__":
    main()
