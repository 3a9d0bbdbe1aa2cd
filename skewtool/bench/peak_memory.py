"""The most memory that a piece of work had allocated at once, above what was allocated before."""

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["peak_of"]


def peak_of(work: Callable[[], Any], device: torch.device) -> int:
    """Bytes of tensors, from the allocator: on a GPU its own peak; on the CPU the running sum of the profiler's events."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    results: Any = profiler.profiler
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    allocated, peak = 0, 0
    for event in sorted(events, key=lambda event: int(event.start_ns())):
        allocated += event.nbytes()
        peak = max(peak, allocated)
    return peak
