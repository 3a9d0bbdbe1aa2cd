"""Latency and bandwidth of a group's all-to-all, measured: what the step-time estimate of `skewtool cost` takes."""

import statistics
import time

import torch
import torch.distributed as dist

from skewtool.parallel.collectives import all_to_all

__all__ = ["calibrate"]

_REPEATS = 9
_BYTES_PER_RANK = 2**20
"""What each rank sends each other one when bandwidth is measured."""


def _seconds(payload_per_rank: int, device: torch.device) -> float:
    rows = torch.zeros(dist.get_world_size() * payload_per_rank, dtype=torch.uint8, device=device)
    seconds = []
    for _ in range(_REPEATS):
        dist.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        all_to_all(rows, None, "calibration")
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    slowest = torch.tensor(statistics.median(seconds), dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def calibrate(device: torch.device) -> dict[str, float]:
    """{"latency_seconds", "bandwidth_bytes_per_second"} of this group: the time of an all_to_all of 8 bytes per pair,
    and the bytes a rank sends in a larger one over its time above that. Medians, of the slowest rank."""
    latency = _seconds(8, device)
    others = (dist.get_world_size() - 1) * _BYTES_PER_RANK
    longer = max(_seconds(_BYTES_PER_RANK, device) - latency, 1e-9)
    return {"latency_seconds": latency, "bandwidth_bytes_per_second": others / longer}
