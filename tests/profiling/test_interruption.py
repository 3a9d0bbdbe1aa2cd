"""Real kills: `skewtool profile` ended by SIGKILL at random moments, then given again with --resume."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.profiling import Part, Profile, merge_parts, profile
from skewtool.storage import peek_header

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL is of POSIX systems")

NUM_TOKENS = 2_000_000
SHORT_SPANS = (
    "from skewtool.profiling import local; local._SPAN_TOKENS = 4096; from skewtool.cli import main; main()"
)
"""The command with spans so short that a small corpus has hundreds of them."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    rng = np.random.default_rng(11)
    for name, share in (("a.npy", 5), ("b.npy", 3)):
        np.save(folder / name, rng.zipf(1.2, NUM_TOKENS * share // 8).clip(max=2000).astype(np.uint16))
    return folder


@pytest.fixture(scope="module")
def plain(corpus: Path) -> Profile:
    return profile(open_corpus(corpus), vocab_size=2001, windows=(64,), sample_size=100)


def start(corpus: Path, output: Path, *more: object) -> "subprocess.Popen[str]":
    arguments = ["profile", corpus, "-o", output, "--vocab-size", 2001, "--window", 64, "--sample-windows", 100, "--resume",
                 "--checkpoint-seconds", 0, "--json", *more]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", SHORT_SPANS, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished_tokens(folder: Path) -> int:
    """Tokens in the checkpoints that lie beside an output."""
    headers = [peek_header(path) for path in folder.glob(".*.checkpoints/from-*.safetensors")]
    return sum(tokens for header in headers if header is not None for _, _, tokens, _ in header["sources"])


def kill_after(tokens: int, process: "subprocess.Popen[str]", folder: Path) -> None:
    """Kills the process when it has finished so many tokens, wherever it then is."""
    deadline = time.monotonic() + 60
    while finished_tokens(folder) < tokens:
        assert process.poll() is None, f"ended before {tokens} tokens: {process.communicate()}"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def finish(process: "subprocess.Popen[str]") -> tuple[dict[str, Any], int]:
    """(what it printed, how many tokens an earlier run had counted)."""
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    told = [line for line in stderr.splitlines() if "had been counted before the interruption" in line]
    assert len(told) == 1
    return json.loads(stdout), int(told[0].split()[1].replace(",", ""))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_goes_on_and_gives_the_same_bytes(
    workers: int, corpus: Path, plain: Profile, tmp_path: Path, bytes_of: Callable[[Profile], bytes]
) -> None:
    output = tmp_path / "p.safetensors"
    for earliest, latest in ((0.01, 0.2), (0.2, 0.4)):
        tokens = round(random.uniform(earliest, latest) * NUM_TOKENS)
        kill_after(tokens, start(corpus, output, "--workers", workers), tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [".p.safetensors.checkpoints"]
        assert finished_tokens(tmp_path) >= tokens
    kept = finished_tokens(tmp_path)
    printed, before = finish(start(corpus, output, "--workers", workers))
    assert (printed["num_tokens"], before) == (NUM_TOKENS, kept)
    assert output.read_bytes() == bytes_of(plain)
    assert list(tmp_path.iterdir()) == [output]


def test_a_killed_task_goes_on_and_its_part_fits(
    corpus: Path, plain: Profile, tmp_path: Path, bytes_of: Callable[[Profile], bytes]
) -> None:
    output = tmp_path / "p"
    task = ["--task-index", 1, "--task-count", 2, "--workers", 2]
    kill_after(round(random.uniform(0.05, 0.2) * NUM_TOKENS), start(corpus, output, *task), tmp_path)
    kept = finished_tokens(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".p.task-1-of-2.checkpoints"]
    other = start(corpus, output, "--task-index", 0, "--task-count", 2)
    printed, before = finish(start(corpus, output, *task))
    _, stderr = other.communicate(timeout=60)
    assert other.returncode == 0, stderr
    assert before == kept < printed["num_tokens"]
    parts = sorted(tmp_path.iterdir())
    assert len(parts) == 2
    assert bytes_of(merge_parts([Part.load(path) for path in parts])) == bytes_of(plain)
