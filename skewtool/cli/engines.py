"""--engine, --ray-address and --ray-tasks: who counts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

__all__ = ["OnRay", "engine_of", "engine_options"]

F = TypeVar("F", bound=Callable[..., Any])

_NOT_ON_RAY = {
    "--task-index": "divides the corpus among the tasks of a cluster itself (--ray-tasks)",
    "--resume": "runs failed tasks again itself, and keeps no checkpoints",
    "--workers": "counts with one thread in each task (--ray-tasks)",
}


@dataclass(frozen=True)
class OnRay:
    """Counting on a Ray cluster; None is Ray's or this engine's own choice."""

    address: str | None
    tasks: int | None


def engine_options(function: F) -> F:
    """The three options; `engine_of` takes their values."""
    for option in (
        click.option("--ray-tasks", type=click.IntRange(min=1), help="How many tasks to divide the corpus into.  "
                     "[default: four for each CPU of the cluster]"),
        click.option("--ray-address", metavar="ADDRESS",
                     help="Of the cluster.  [default: RAY_ADDRESS, else one on this machine, else a new one here]"),
        click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True,
                     help="Who counts: threads here, or tasks on a Ray cluster, whose nodes see the same paths."),
    ):  # fmt: skip
        function = option(function)
    return function


def engine_of(engine: str, address: str | None, tasks: int | None, given: Mapping[str, bool]) -> OnRay | None:
    """The Ray engine that the options mean; None for this machine's threads. `given`: which other options are.

    Errors: click.UsageError for options that the engine cannot follow.
    """
    if engine == "local":
        for name, value in (("--ray-address", address), ("--ray-tasks", tasks)):
            if value is not None:
                raise click.UsageError(f"{name} is an option of --engine ray: pass that, too")
        return None
    for name, reason in _NOT_ON_RAY.items():
        if given[name]:
            raise click.UsageError(f"--engine ray takes no {name}: it {reason}")
    return OnRay(address, tasks)
