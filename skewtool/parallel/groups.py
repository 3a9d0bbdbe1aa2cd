"""Rank, size and device of a process group, also where there is none: one process is a group of its own.

`group` is a torch.distributed process group; None is the default group where one is initialised, else a single rank.
"""

import torch
import torch.distributed as dist

__all__ = ["Group", "device_of", "rank_of", "size_of"]

Group = dist.ProcessGroup | None


def _alone(group: Group) -> bool:
    return group is None and not (dist.is_available() and dist.is_initialized())


def rank_of(group: Group) -> int:
    """This process's rank in the group, 0 where there is none."""
    return 0 if _alone(group) else dist.get_rank(group)


def size_of(group: Group) -> int:
    """Ranks in the group, 1 where there is none."""
    return 1 if _alone(group) else dist.get_world_size(group)


def device_of(group: Group) -> torch.device:
    """Where tensors must be for the group's collectives: this rank's current GPU under NCCL, else the CPU."""
    if not _alone(group) and dist.get_backend(group) == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
