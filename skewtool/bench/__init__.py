"""Layouts side by side on real collectives: what they take, and whether it is what was predicted. Needs torch."""

from skewtool.bench.launch import Host, local_hosts
from skewtool.bench.peers import available_peers
from skewtool.bench.results import BenchResult
from skewtool.bench.run import BenchOptions, run_bench, run_calibration, usual_backend
from skewtool.bench.wire import why_no_wire, wired_hosts

__all__ = [
    "BenchOptions",
    "BenchResult",
    "Host",
    "available_peers",
    "local_hosts",
    "run_bench",
    "run_calibration",
    "usual_backend",
    "why_no_wire",
    "wired_hosts",
]
