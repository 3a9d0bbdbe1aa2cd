"""--task-index and --task-count: numbers, or "auto" for the variables that Slurm and Kubernetes set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from skewtool.errors import SkewtoolError

__all__ = ["Task", "task_of", "task_options"]

F = TypeVar("F", bound=Callable[..., Any])

_AUTO = "auto"


@dataclass(frozen=True)
class Task:
    """One of `count` runs that divide a corpus among them, from 0 on."""

    index: int
    count: int


def _number_or_auto(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == _AUTO:
        return value
    if not value.isdecimal():
        raise click.BadParameter(f"{value!r} is neither a whole number nor {_AUTO}")
    return int(value)


def task_options(function: F) -> F:
    """The two options; `task_of` takes their values."""
    for option in (
        click.option("--task-count", callback=_number_or_auto, metavar="N|auto", help="How many tasks share the corpus."),
        click.option("--task-index", callback=_number_or_auto, metavar="I|auto",
                     help="Count only the share of this task, 0 to N-1, into a part beside the output; merge all parts. "
                          "auto: as Slurm (array or srun) or a Kubernetes indexed job says."),
    ):  # fmt: skip
        function = option(function)
    return function


def task_of(index: int | str | None, count: int | str | None, environment: Mapping[str, str]) -> Task | None:
    """The task that the options mean; None without them.

    "auto" reads SLURM_ARRAY_TASK_ID with _MIN, _STEP and _COUNT, then SLURM_PROCID with SLURM_STEP_NUM_TASKS or
    SLURM_NTASKS (several processes for each element of an array count on), or JOB_COMPLETION_INDEX, whose count Kubernetes
    does not tell. Errors: click.UsageError when one option is missing or the index is no task; SkewtoolError when the
    variables are missing or contradict the count.
    """
    if index is None and count is None:
        return None
    if index is None or count is None:
        raise click.UsageError("--task-index and --task-count go together: give both")
    if _AUTO in (index, count):
        found_index, found_count = _of_environment(environment)
        if count == _AUTO and found_count is None:
            raise SkewtoolError("JOB_COMPLETION_INDEX says which task this is, but nothing of how many; pass --task-count N")
        if index == _AUTO and found_count is not None and count not in (_AUTO, found_count):
            raise SkewtoolError(f"--task-count is {count}, but this job runs {found_count} tasks; pass --task-count auto")
        index = found_index if index == _AUTO else index
        count = found_count if count == _AUTO else count
    task = Task(int(index), int(count or 0))
    if not task.index < task.count:
        raise click.UsageError(f"--task-index must be 0 to --task-count minus one, got {task.index} of {task.count}")
    return task


def _of_environment(environment: Mapping[str, str]) -> tuple[int, int | None]:
    """(index, count) as the scheduler says."""
    in_array, in_step = "SLURM_ARRAY_TASK_ID" in environment, "SLURM_PROCID" in environment
    if in_array or in_step:
        element, elements = _array_element(environment) if in_array else (0, 1)
        processes = _whole(environment, "SLURM_STEP_NUM_TASKS", _whole(environment, "SLURM_NTASKS", 1))
        return element * processes + _whole(environment, "SLURM_PROCID", 0), elements * processes
    if "JOB_COMPLETION_INDEX" in environment:
        return _whole(environment, "JOB_COMPLETION_INDEX", 0), None
    raise SkewtoolError(
        "auto needs SLURM_ARRAY_TASK_ID, SLURM_PROCID or JOB_COMPLETION_INDEX, and none is set; give numbers for "
        "--task-index and --task-count"
    )


def _array_element(environment: Mapping[str, str]) -> tuple[int, int]:
    """Which element of a Slurm array, and of how many."""
    lowest, step = _whole(environment, "SLURM_ARRAY_TASK_MIN", 0), max(1, _whole(environment, "SLURM_ARRAY_TASK_STEP", 1))
    place = _whole(environment, "SLURM_ARRAY_TASK_ID", 0) - lowest
    highest = _whole(environment, "SLURM_ARRAY_TASK_MAX", lowest + place)
    count = _whole(environment, "SLURM_ARRAY_TASK_COUNT", (highest - lowest) // step + 1)
    if place % step or place // step >= count or highest - lowest >= count * step:
        raise SkewtoolError(
            f"the Slurm array has {count} tasks from {lowest} to {highest}, not evenly spaced; use --array=0-{count - 1}, "
            "or give numbers for --task-index and --task-count"
        )
    return place // step, count


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name)
    if value is None or value.isdecimal():
        return default if value is None else int(value)
    raise SkewtoolError(f"the variable {name} is {value!r}, expected a whole number")
