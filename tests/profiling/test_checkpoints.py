"""Checkpoints: a run that was interrupted goes on without counting anything twice, and only where nothing has changed."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skewtool
from skewtool.corpus import ArraySource, Corpus, Ids, open_corpus
from skewtool.errors import ProfileError
from skewtool.profiling import Checkpoints, Profile, blocks, local, profile, profile_part
from skewtool.profiling.checkpoints import Evidence, Timer

OPTIONS: dict[str, Any] = {"vocab_size": 90, "windows": (8, 12), "sample_size": 30}
SPAN = 2016  # a multiple of both windows, and more than the ids that are hashed


class Stopped(Exception):
    """Instead of a kill."""


class StopAfter:
    """A progress callback that ends the run after some blocks."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    def __call__(self, count: int) -> None:
        self.blocks -= 1
        if self.blocks < 0:
            raise Stopped


@pytest.fixture(autouse=True)
def short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_SPAN_TOKENS", SPAN)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    for name, size in (("a.npy", 10 * SPAN + 77), ("b.npy", 5 * SPAN)):
        np.save(tmp_path / name, rng.integers(0, 90, size).astype(np.uint16))
    return tmp_path


@pytest.fixture
def stopped(folder: Path) -> Checkpoints:
    """What a run has left that ended after 9 of its 16 spans."""
    checkpoints = Checkpoints(folder / ".kept", every_seconds=0)
    with pytest.raises(Stopped):
        profile(open_corpus(folder), checkpoints=checkpoints, progress=StopAfter(9), **OPTIONS)
    return checkpoints


def resumed(folder: Path, **changed: Any) -> tuple[Profile, Checkpoints]:
    checkpoints = Checkpoints(folder / ".kept", every_seconds=0)
    return profile(open_corpus(folder), checkpoints=checkpoints, **(OPTIONS | changed)), checkpoints


def spans_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """(name, start, stop) of what is read from now on, without the short heads of spans that are looked at again."""
    read: list[tuple[str, int, int]] = []
    plain = ArraySource.blocks

    def blocks(self: ArraySource, start: int = 0, stop: int | None = None, *rest: Any, **more: Any) -> Iterator[Ids]:
        end = self.num_tokens if stop is None else stop
        if end - start != 1024:
            read.append((self.name, start, end))
        return plain(self, start, stop, *rest, **more)

    monkeypatch.setattr(ArraySource, "blocks", blocks)
    return read


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_stopped_run_goes_on_and_gives_the_same_bytes(
    workers: int, folder: Path, stopped: Checkpoints, bytes_of: Callable[[Profile], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = profile(open_corpus(folder), **OPTIONS)
    corpus = open_corpus(folder)
    read = spans_read(monkeypatch)
    told: list[int] = []
    checkpoints = Checkpoints(stopped.directory, every_seconds=0)
    made = profile(corpus, workers=workers, checkpoints=checkpoints, progress=told.append, **OPTIONS)
    assert bytes_of(made) == bytes_of(plain)
    assert checkpoints.num_tokens == 9 * SPAN
    assert sum(stop - start for _, start, stop in read) == plain.num_tokens - checkpoints.num_tokens
    assert sum(told) == corpus.num_bytes


@pytest.mark.parametrize("workers", [1, 3])
def test_a_stopped_run_goes_on_with_its_blocks(
    workers: int, folder: Path, bytes_of: Callable[[Profile], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_LEAST_BYTES", 10_000)  # more than a span, so that the run is stopped within a block
    with pytest.raises(Stopped):
        profile(open_corpus(folder), checkpoints=Checkpoints(folder / ".kept", 0), progress=StopAfter(8), workers=workers,
                **OPTIONS)  # fmt: skip
    made, checkpoints = resumed(folder, workers=workers)
    plain = profile(open_corpus(folder), **OPTIONS)
    assert 0 < checkpoints.num_tokens < plain.num_tokens
    assert plain.timeline is not None
    assert len(plain.timeline) == 6
    assert bytes_of(made) == bytes_of(plain)


def test_a_run_may_be_stopped_again_and_again(folder: Path, bytes_of: Callable[[Profile], bytes]) -> None:
    found: list[int] = []
    for number in (3, 5, 4):
        checkpoints = Checkpoints(folder / ".kept", every_seconds=0)
        stop = StopAfter(number + (1 if found else 0))  # finished ranges are told to the callback, too, all at once
        with pytest.raises(Stopped):
            profile(open_corpus(folder), checkpoints=checkpoints, progress=stop, **OPTIONS)
        found.append(checkpoints.num_tokens)
    made, checkpoints = resumed(folder)
    assert [*found, checkpoints.num_tokens] == [0, 3 * SPAN, 8 * SPAN, 11 * SPAN + 77]
    assert bytes_of(made) == bytes_of(profile(open_corpus(folder), **OPTIONS))


def test_all_may_be_finished(folder: Path, bytes_of: Callable[[Profile], bytes]) -> None:
    first, _ = resumed(folder)
    second, checkpoints = resumed(folder)
    assert checkpoints.num_tokens == first.num_tokens
    assert bytes_of(first) == bytes_of(second)


def test_removing_leaves_what_is_not_ours(folder: Path, stopped: Checkpoints) -> None:
    (stopped.directory / ".from-0.0.safetensors.123.tmp").write_bytes(b"killed while writing")
    other = stopped.directory / "notes.txt"
    other.write_text("mine")
    stopped.remove()
    assert list(stopped.directory.iterdir()) == [other]
    other.unlink()
    stopped.remove()
    assert not stopped.directory.exists()
    stopped.remove()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"windows": (8,)}, r"window lengths: \[8\] and \[8, 12\]"),
        ({"vocab_size": 91}, "vocabulary sizes: 91 and 90"),
        ({"seed": 3}, "sample seeds: 3 and 0"),
        ({"sample_size": 31}, "sample sizes: 31 and 30"),
    ],
)
def test_other_settings_are_refused(changed: dict[str, Any], what: str, folder: Path, stopped: Checkpoints) -> None:
    before = sorted(stopped.directory.iterdir())
    with pytest.raises(ProfileError, match=f"cannot go on from .*kept.* different {what} .*remove that directory"):
        resumed(folder, **changed)
    assert sorted(stopped.directory.iterdir()) == before


def test_another_version_is_refused(folder: Path, stopped: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skewtool, "__version__", "9.9")
    with pytest.raises(ProfileError, match=r"versions of skewtool: 9\.9 and"):
        resumed(folder)


def test_a_file_of_another_size_or_a_further_file_is_refused(folder: Path, stopped: Checkpoints) -> None:
    np.save(folder / "c.npy", np.zeros(9, np.uint16))
    with pytest.raises(ProfileError, match="files of other sizes"):
        resumed(folder)
    (folder / "c.npy").unlink()
    np.save(folder / "b.npy", np.ones(5 * SPAN + 1, np.uint16))
    with pytest.raises(ProfileError, match="files of other sizes"):
        resumed(folder)


def rewritten(path: Path, place: int, keep_time: bool) -> None:
    """One id more at `place`, the size as it was."""
    status = path.stat()
    ids = np.load(path)
    ids[place] = (ids[place] + 1) % 90
    np.save(path, ids)
    later = status.st_mtime_ns if keep_time else status.st_mtime_ns + 10**9
    os.utime(path, ns=(status.st_atime_ns, later))


@pytest.mark.parametrize(("place", "keep_time"), [(4 * SPAN + 1500, False), (0, True), (SPAN + 1023, True)])
def test_a_file_that_was_read_and_has_changed_is_refused(
    place: int, keep_time: bool, folder: Path, stopped: Checkpoints
) -> None:
    rewritten(folder / "a.npy", place, keep_time)
    with pytest.raises(ProfileError, match=r"a\.npy has changed since; remove that directory to count anew"):
        resumed(folder)


def test_a_file_that_was_not_yet_read_may_change(folder: Path, bytes_of: Callable[[Profile], bytes]) -> None:
    with pytest.raises(Stopped):
        profile(open_corpus(folder), checkpoints=Checkpoints(folder / ".kept", 0), progress=StopAfter(4), **OPTIONS)
    rewritten(folder / "b.npy", 0, keep_time=False)
    made, checkpoints = resumed(folder)
    assert checkpoints.num_tokens == 4 * SPAN
    assert bytes_of(made) == bytes_of(profile(open_corpus(folder), **OPTIONS))


@pytest.mark.parametrize("content", [b"", b"half of it", None])
def test_a_damaged_checkpoint_is_counted_again(
    content: bytes | None, folder: Path, stopped: Checkpoints, bytes_of: Callable[[Profile], bytes]
) -> None:
    path = sorted(stopped.directory.iterdir())[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-5] + b"x" + whole[-4:] if content is None else content)
    with pytest.warns(UserWarning, match="what this checkpoint held is counted again"):
        made, _ = resumed(folder)
    assert bytes_of(made) == bytes_of(profile(open_corpus(folder), **OPTIONS))


def test_a_checkpoint_that_overlaps_others_is_counted_again(
    folder: Path, stopped: Checkpoints, bytes_of: Callable[[Profile], bytes]
) -> None:
    path = sorted(stopped.directory.iterdir())[0]
    path.with_name("from-9.9.safetensors").write_bytes(path.read_bytes())
    with pytest.warns(UserWarning, match=r"from-9\.9\.safetensors overlaps other checkpoints"):
        made, _ = resumed(folder)
    assert bytes_of(made) == bytes_of(profile(open_corpus(folder), **OPTIONS))


def test_a_part_among_checkpoints_is_refused(folder: Path, stopped: Checkpoints) -> None:
    path = stopped.directory / "from-9.9.safetensors"
    profile_part(open_corpus(folder), task_index=1, task_count=2, **OPTIONS).save(path)
    with pytest.raises(ProfileError, match=r"from-9\.9\.safetensors lies among checkpoints and is none: .*; move it away"):
        resumed(folder)


def test_a_source_of_unknown_size_is_finished_or_not(tmp_path: Path, bytes_of: Callable[[Profile], bytes]) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"input_ids": {list(range(number, 70))}}}\n')
    with pytest.raises(Stopped):
        profile(open_corpus(tmp_path), checkpoints=Checkpoints(tmp_path / ".kept", 0), progress=StopAfter(2), windows=(8,))
    checkpoints = Checkpoints(tmp_path / ".kept", 0)
    corpus = open_corpus(tmp_path)
    made = profile(corpus, checkpoints=checkpoints, windows=(8,))
    assert checkpoints.num_tokens == 70 + 69
    assert bytes_of(made) == bytes_of(profile(corpus, windows=(8,)))


def test_a_timer_is_due_after_its_time() -> None:
    assert Timer(0).due()
    assert not Timer(1000).due()


def test_evidence_of_many_spans_stays_short(corpus_of: Callable[..., Corpus]) -> None:
    evidence = Evidence()
    (source,) = corpus_of({"a.npy": [1, 2, 3]}).sources
    for start in range(1000):
        evidence.see_ids(0, source, start, np.array([start], np.uint16))
    assert 64 <= len(evidence.heads) <= 128
    assert max(start for _, start, _, _ in evidence.heads) > 500
