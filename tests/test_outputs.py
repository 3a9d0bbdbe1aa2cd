"""Outputs never destroy inputs or devices, and follow links."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from skewtool.cli import main


def _run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    return result.exit_code, result.stderr


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    np.save(tmp_path / "ids.npy", np.arange(500, dtype=np.uint16) % 50)
    return tmp_path / "ids.npy"


def test_the_corpus_is_not_replaced_by_its_profile(corpus: Path) -> None:
    before = corpus.read_bytes()
    code, error = _run("profile", corpus, "-o", corpus)
    assert (code, corpus.read_bytes()) == (1, before)
    assert "is one of the inputs" in error
    assert _run("profile", corpus.parent, "-o", corpus)[0] == 1
    assert corpus.read_bytes() == before


def test_a_profile_is_not_replaced_by_its_map(corpus: Path) -> None:
    profile = corpus.with_name("p")
    assert _run("profile", corpus, "--window", "50", "-o", profile)[0] == 0
    before = profile.read_bytes()
    for command in (["partition", profile, "--shards", 2], ["merge", profile]):
        code, error = _run(*command, "-o", profile)
        assert (code, profile.read_bytes()) == (1, before)
        assert "is one of the inputs" in error


def test_a_device_is_refused(corpus: Path) -> None:
    code, error = _run("profile", corpus, "-o", "/dev/null")
    assert code == 1
    assert "no regular file" in error
    assert Path("/dev/null").is_char_device()


def test_a_link_is_followed(corpus: Path) -> None:
    link, target = corpus.with_name("link"), corpus.with_name("target")
    target.write_bytes(b"old")
    link.symlink_to(target)
    assert _run("profile", corpus, "--window", "50", "-o", link)[0] == 0
    assert link.is_symlink()
    assert target.read_bytes() != b"old"


def test_a_pipe_is_no_corpus(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    code, error = _run("profile", tmp_path / "pipe", "--dtype", "uint16", "-o", tmp_path / "p")
    assert code == 1
    assert "neither a regular file nor a directory" in error


@pytest.mark.parametrize("number", ["99999999999999999999", "2147483648"])
def test_numbers_without_sense_are_refused_in_a_line(corpus: Path, number: str) -> None:
    profile = corpus.with_name("p")
    _run("profile", corpus, "--window", "50", "-o", profile)
    for command in (
        ["profile", corpus, "--window", number],
        ["partition", profile, "--shards", number],
        ["partition", profile, "--shards", 2, "--tokens-per-rank", number],
    ):
        code, error = _run(*command, "-o", corpus.with_name("out"))
        assert code in (1, 2)
        assert "Traceback" not in error
    assert not corpus.with_name("out").exists()


def test_more_room_than_ids_is_no_more_use(corpus: Path) -> None:
    profile, out = corpus.with_name("p"), corpus.with_name("out")
    _run("profile", corpus, "--window", "50", "-o", profile)
    assert _run("partition", profile, "--shards", 2, "--extra-rows", 10**20, "-o", out)[0] == 0


def test_nothing_left_to_count_is_an_error(corpus: Path) -> None:
    np.save(corpus, np.full(100, 60000, np.uint16))
    out = corpus.with_name("out")
    code, error = _run("profile", corpus, "--vocab-size", 10, "--allow", "bad-ids", "-o", out)
    assert code == 1
    assert "nothing is left to count" in error
    assert not out.exists()
