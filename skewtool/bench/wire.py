"""Hosts with a real wire between them, on one machine: network namespaces, joined by rate-limited links.

Each host is a namespace with one interface; a further namespace is the switch. A token bucket limits both ends of each
link, so that a host sends and receives at the chosen rate, and what goes over is real TCP over real queues. All is made
with `ip` and `tc` (package iproute2), needs root, uses addresses that exist only inside, and is removed at the end.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from skewtool.bench.launch import Host
from skewtool.errors import BenchError

__all__ = ["why_no_wire", "wired_hosts"]

_PORT = "29500"  # inside the namespaces nothing else listens
_MTU = 9000
"""Jumbo frames, as networks between machines that train have them: the wire is to be the limit, not the handling of packets
by the cores that all hosts share here."""
_BURST = "32kb"
"""What may go at once after a pause: three packets, so that short messages are not let through for free."""


def why_no_wire() -> str | None:
    """The reason why namespaces cannot be made here, or None."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found (package iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"skewtool-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"ip netns add: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{command}: {done.stderr.strip()}; run as root with iproute2, or without a wire")


def _connect(host: str, switch: str, number: int, rate: str) -> None:
    """One link from a host to the switch, limited at both ends."""
    port = f"p{number}"
    _do(f"ip link add eth0 netns {host} mtu {_MTU} type veth peer name {port} mtu {_MTU} netns {switch}")
    _do(f"ip -n {switch} link set {port} master bridge up")
    _do(f"ip -n {host} addr add 10.77.{number // 250}.{number % 250 + 1}/16 dev eth0")
    _do(f"ip -n {host} link set eth0 up")
    _do(f"ip -n {host} link set lo up")
    for namespace, device in ((host, "eth0"), (switch, port)):
        _do(f"ip netns exec {namespace} tc qdisc add dev {device} root tbf rate {rate} burst {_BURST} latency 200ms")


@contextmanager
def wired_hosts(number: int, rate: str) -> Iterator[list[Host]]:
    """`number` hosts whose links run at `rate`, as tc writes it (400mbit). Whatever happens, all is removed again.

    Errors: BenchError with what `ip` or `tc` said.
    """
    prefix = f"skewtool-{os.getpid()}"
    switch, names = f"{prefix}-switch", [f"{prefix}-{host}" for host in range(number)]
    made: list[str] = []
    try:
        for name in [switch, *names]:
            _do(f"ip netns add {name}")
            made.append(name)
        _do(f"ip -n {switch} link add bridge type bridge")
        _do(f"ip -n {switch} link set bridge up")
        for host, name in enumerate(names):
            _connect(name, switch, host, rate)
        environment = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": _PORT, "GLOO_SOCKET_IFNAME": "eth0"}
        yield [Host(["ip", "netns", "exec", name], environment) for name in names]
    finally:
        for name in made:  # with a namespace goes all that is in it
            subprocess.run(["ip", "netns", "del", name], check=False)
