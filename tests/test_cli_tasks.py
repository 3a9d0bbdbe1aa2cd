"""`profile` in many tasks, `merge` of their parts, and --resume, from the command line."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from skewtool.cli import main
from skewtool.cli.tasks import Task, task_of
from skewtool.errors import SkewtoolError
from skewtool.profiling import Part

KEPT = ".p.safetensors.checkpoints"


def _invoke(*arguments: object, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env=env)


def _good(*arguments: object, env: Mapping[str, str] | None = None) -> Result:
    result = _invoke(*arguments, env=env)
    assert result.exit_code == 0, result.output
    return result


def _error(*arguments: object) -> str:
    """The one line on stderr of a command that must fail."""
    result = _invoke(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = [each for each in result.stderr.splitlines() if not each.startswith("note: ")]
    return line


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rng = np.random.default_rng(8)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, size in (("a.npy", 3000), ("b.npy", 7), ("c.npy", 2000)):
        np.save(folder / name, rng.integers(0, 100, size).astype(np.uint16))
    return folder


def _profile(corpus: Path, *more: object) -> list[object]:
    return ["profile", corpus, "-o", corpus.parent / "p.safetensors", "--window", "64,96", "--sample-windows", 9, *more]


def test_twenty_tasks_give_the_bytes_of_one_run(corpus: Path) -> None:
    for index in range(20):
        more = ["--resume"] if index % 2 else []
        _good(*_profile(corpus, "--task-index", index, "--task-count", 20, "--workers", 1 + index % 3, *more))
    parts = sorted(corpus.parent.glob("p.part-*.safetensors"))
    assert len(parts) == 20
    assert sorted(corpus.parent.iterdir()) == sorted([corpus, *parts])
    _good("merge", *parts[::-1], parts[3], "-o", corpus.parent / "merged")
    _good(*_profile(corpus))
    assert (corpus.parent / "merged").read_bytes() == (corpus.parent / "p.safetensors").read_bytes()
    assert "the parts leave a gap" in _error("merge", *parts[:3], *parts[4:], "-o", corpus.parent / "m")


def test_more_tasks_than_windows_leave_empty_parts(corpus: Path) -> None:
    for index in range(40):
        _good(*_profile(corpus, "--task-index", index, "--task-count", 40))
    parts = sorted(corpus.parent.glob("p.part-*"))
    assert any(first == last for part in parts for first, last in Part.load(part).ranges)
    _good("merge", *parts, "-o", corpus.parent / "merged")
    _good(*_profile(corpus))
    assert (corpus.parent / "merged").read_bytes() == (corpus.parent / "p.safetensors").read_bytes()


def test_json_of_a_part_and_inspect(corpus: Path) -> None:
    result = _good(*_profile(corpus, "--task-index", 1, "--task-count", 2, "--json"))
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["task"] == [1, 2]
    (part,) = corpus.parent.glob("p.part-*")
    assert found["part"] == str(part)
    ((first, last),) = found["ranges"]
    assert part.name == f"p.part-{first[0]}.{first[1]}-{last[0]}.{last[1]}.safetensors"
    assert found["num_tokens"] == sum(each["num_tokens"] for each in found["files"])
    inspected = json.loads(_good("inspect", part, "--json").stdout)
    assert (inspected["kind"], inspected["ranges"]) == ("profile-part", found["ranges"])
    assert "expected a profile file" in _error("partition", part, "-o", corpus.parent / "m", "--shards", 2)
    assert "M tokens/s" in _good(*_profile(corpus, "--task-index", 1, "--task-count", 2)).stdout


def test_parts_and_profiles_do_not_mix(corpus: Path) -> None:
    _good(*_profile(corpus))
    _good(*_profile(corpus, "--task-index", 0, "--task-count", 1))
    (part,) = corpus.parent.glob("p.part-*")
    told = _error("merge", part, corpus.parent / "p.safetensors", "-o", corpus.parent / "m")
    assert "is a skewtool profile file, expected a profile-part file" in told


def test_parts_are_not_written_into_the_corpus(corpus: Path) -> None:
    told = _error("profile", corpus, "-o", corpus / "p", "--task-index", 0, "--task-count", 2)
    assert "would lie in the corpus" in told


def test_variables_of_a_scheduler_are_read_when_asked(corpus: Path) -> None:
    array = {"SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_MAX": "6"}
    for number in ("5", "6"):
        _good(*_profile(corpus, "--task-index", "auto", "--task-count", "auto"), env=array | {"SLURM_ARRAY_TASK_ID": number})
    _good("merge", *corpus.parent.glob("p.part-*"), "-o", corpus.parent / "merged")
    _good(*_profile(corpus), env=array | {"SLURM_ARRAY_TASK_ID": "5"})
    assert (corpus.parent / "merged").read_bytes() == (corpus.parent / "p.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("index", "count", "environment", "task"),
    [
        (None, None, {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, None),
        (2, 5, {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, (2, 5)),
        ("auto", "auto", {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, (1, 4)),
        ("auto", "auto", {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "2"}, (1, 2)),
        ("auto", 4, {"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, (3, 4)),
        (0, "auto", {"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, (0, 4)),
        ("auto", "auto", {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "1",
                          "SLURM_ARRAY_TASK_MAX": "10", "SLURM_ARRAY_TASK_STEP": "3"}, (2, 4)),
        ("auto", "auto", {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "0",
                          "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (3, 6)),
        ("auto", 9, {"JOB_COMPLETION_INDEX": "8"}, (8, 9)),
    ],
)  # fmt: skip
def test_which_task_this_is(
    index: int | str | None, count: int | str | None, environment: dict[str, str], task: tuple[int, int] | None
) -> None:
    assert task_of(index, count, environment) == (None if task is None else Task(*task))


@pytest.mark.parametrize(
    ("index", "count", "environment", "told"),
    [
        ("auto", "auto", {}, "none is set; give numbers"),
        ("auto", "auto", {"JOB_COMPLETION_INDEX": "1"}, "pass --task-count N"),
        ("auto", 3, {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, "--task-count is 3, but this job runs 4 tasks"),
        ("auto", "auto", {"SLURM_PROCID": "x"}, "SLURM_PROCID is 'x', expected a whole number"),
        ("auto", "auto", {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "1",
                          "SLURM_ARRAY_TASK_MAX": "7"}, "not evenly spaced; use --array=0-2"),
    ],
)  # fmt: skip
def test_variables_that_do_not_tell(
    index: int | str, count: int | str, environment: dict[str, str], told: str
) -> None:
    with pytest.raises(SkewtoolError, match=told):
        task_of(index, count, environment)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--task-index", 0], ["--task-count", 2], ["--task-index", 2, "--task-count", 2],
        ["--task-index", -1, "--task-count", 2], ["--task-index", "x", "--task-count", 2],
        ["--task-index", 0, "--task-count", 0], ["--checkpoint-seconds", -1],
    ],
)  # fmt: skip
def test_wrong_usage(arguments: list[object], corpus: Path) -> None:
    result = _invoke(*_profile(corpus, *arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert sorted(corpus.parent.iterdir()) == [corpus]


def test_an_index_without_a_count_is_told_apart() -> None:
    with pytest.raises(click.UsageError, match="go together"):
        task_of(1, None, {})


def test_resume_with_nothing_to_resume_leaves_nothing_behind(corpus: Path) -> None:
    _good(*_profile(corpus, "--resume", "--checkpoint-seconds", 0))
    assert sorted(each.name for each in corpus.parent.iterdir()) == ["corpus", "p.safetensors"]


@pytest.mark.filterwarnings("default")  # the command turns warnings into notes
def test_old_checkpoints_are_told_of_and_not_used_without_resume(corpus: Path) -> None:
    kept = corpus.parent / KEPT
    kept.mkdir()
    (kept / "from-0.0.safetensors").write_bytes(b"damaged")
    result = _good(*_profile(corpus))
    assert f"note: {kept} has checkpoints of an earlier run, which are not used: pass --resume" in result.stderr
    assert (kept / "from-0.0.safetensors").read_bytes() == b"damaged"
    result = _good(*_profile(corpus, "--resume"))
    assert "what this checkpoint held is counted again" in result.stderr
    assert not kept.exists()


def test_a_failed_run_keeps_its_checkpoints_and_another_vocabulary_is_refused(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skewtool.profiling.local._SPAN_TOKENS", 192)
    ids = np.load(corpus / "c.npy")
    ids[1500] = 5000
    np.save(corpus / "c.npy", ids)
    resume = ["--resume", "--checkpoint-seconds", 0, "--vocab-size"]
    assert "5000 at token 1500" in _error(*_profile(corpus, *resume, 100))
    assert [path.name for path in sorted(corpus.parent.iterdir())] == [KEPT, "corpus"]
    assert "vocabulary sizes: 6000 and 100" in _error(*_profile(corpus, *resume, 6000))
    status = (corpus / "c.npy").stat()
    ids[1500] = 50
    np.save(corpus / "c.npy", ids)
    os.utime(corpus / "c.npy", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert "c.npy has changed since" in _error(*_profile(corpus, *resume, 100))
