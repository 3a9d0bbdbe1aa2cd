"""`Link`: how long a collective takes, from a latency and a bandwidth; and the calibration file that has both.

The model is the usual one (Hockney 1994, alpha and beta): a call takes its latency, and the bytes that its busiest rank
sends or receives by the bandwidth of one rank, which does both at once. Calls follow each other. Computation is left out.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from skewtool.errors import FileFormatError, SkewtoolError
from skewtool.skew.traffic import BACKENDS, Backend, Traffic, repeated

__all__ = ["Link", "read_calibration"]


@dataclass(frozen=True)
class Link:
    """Of each rank. Errors: SkewtoolError unless latency is finite and at least 0, and bandwidth finite and above 0."""

    latency_seconds: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_seconds) and self.latency_seconds >= 0):
            raise SkewtoolError(f"a latency must be 0 seconds or more, got {self.latency_seconds}")
        if not (math.isfinite(self.bytes_per_second) and self.bytes_per_second > 0):
            raise SkewtoolError(f"a bandwidth must be above 0 bytes per second, got {self.bytes_per_second}")

    def seconds(self, traffic: Iterable[Traffic], backend: Backend) -> float:
        """Of all calls, one after the other."""
        return sum(
            number * (self.latency_seconds + each.busiest_bytes(backend) / self.bytes_per_second)
            for each, number in repeated(traffic)
        )


def read_calibration(path: Path) -> tuple[Backend, Link]:
    """A file as `skewtool bench --calibrate` writes it: JSON with "backend", "latency_seconds" and
    "bandwidth_bytes_per_second". Errors: FileFormatError for anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        backend, latency, bandwidth = (
            found[key] for key in ("backend", "latency_seconds", "bandwidth_bytes_per_second")
        )
        link = Link(float(latency), float(bandwidth))
    except (UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"{path} is no calibration: expected JSON with backend, latency_seconds and bandwidth_bytes_per_second, found "
            f"{str(error) or type(error).__name__}; make one with skewtool bench --calibrate FILE"
        ) from None
    if backend not in BACKENDS:
        raise FileFormatError(f"{path} is a calibration of backend {backend!r}; known are {', '.join(BACKENDS)}")
    return backend, link
