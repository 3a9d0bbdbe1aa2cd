"""--engine: what goes together, without a cluster (tests/profiling/test_ray_engine.py has one)."""

import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from skewtool.cli import main


def _invoke(folder: Path, *more: str) -> tuple[int, str]:
    np.save(folder / "a.npy", np.arange(9, dtype=np.uint16))
    result = CliRunner().invoke(main, ["profile", str(folder / "a.npy"), "-o", str(folder / "p"), *more])
    assert result.stdout == ""
    assert not (folder / "p").exists()
    return result.exit_code, result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--ray-tasks 3", "--ray-tasks is an option of --engine ray"),
        ("--engine local --ray-address auto", "--ray-address is an option of --engine ray"),
        ("--engine ray --workers 2", "--engine ray takes no --workers"),
        ("--engine ray --resume", "--engine ray takes no --resume"),
        ("--engine ray --task-index 0 --task-count 2", "--engine ray takes no --task-index"),
        ("--engine ray --ray-tasks 0", "0 is not in the range"),
    ],
)
def test_options_that_do_not_go_together(options: str, why: str, tmp_path: Path) -> None:
    code, error = _invoke(tmp_path, *options.split())
    assert code == 2
    assert why in error


def test_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    error = "skewtool: error: the Ray engine needs ray: pip install 'skewtool[ray]'"
    assert _invoke(tmp_path, "--engine", "ray") == (1, error)


def test_bad_options_are_refused_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, error = _invoke(tmp_path, "--engine", "ray", "--vocab-size", "100000")
    assert code == 1
    assert "stores uint16" in error
