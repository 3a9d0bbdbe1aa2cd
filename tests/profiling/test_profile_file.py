"""The file of a profile: all of it comes back, and other files are refused by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skewtool.corpus import Corpus, TokenizerFile
from skewtool.errors import FileFormatError
from skewtool.profiling import Profile, profile
from skewtool.profiling.profile_file import KIND, VERSION
from skewtool.storage import load_tensor_file, save_tensor_file

TIMELINE = ("num_tokens", "ids", "counts", "loads")


@pytest.fixture
def made(tmp_path: Path, corpus_of: Callable[..., Corpus], write_tokenizer: Callable[..., Path]) -> Profile:
    """A profile that has everything: windows, a sample, dropped ids, notes, a tokenizer."""
    corpus = corpus_of({"a.npy": [1, 2, 3, 3, 2, 60], "ü.npy": [9, 9, 9]})
    tokenizer = TokenizerFile(write_tokenizer(tmp_path / "t.json", 40, added=2))
    return profile(corpus, tokenizer=tokenizer, windows=(2, 3), sample_size=2, seed=-5, allow=("bad-ids",))


@pytest.fixture
def saved(made: Profile, tmp_path: Path) -> Path:
    path = tmp_path / "profile.safetensors"
    made.save(str(path))
    return path


def test_all_of_it_comes_back(made: Profile, saved: Path, as_lists: Callable[..., Any]) -> None:
    loaded = Profile.load(str(saved))
    for name in ("sources", "sample_size", "seed", "dropped", "notes", "tokenizer", "counts_sha256", "vocab_size"):
        assert getattr(loaded, name) == getattr(made, name), name
    assert (made.dropped, len(made.notes), made.seed) == ({"bad-ids": 1}, 1, -5)
    for one, other in zip(loaded.windows, made.windows, strict=True):
        assert (one.length, one.num_windows) == (other.length, other.num_windows)
        assert one.presence.tolist() == other.presence.tolist()
        assert as_lists(one.sample.windows()) == as_lists(other.sample.windows())
        assert (one.sample.keys.dtype.name, one.sample.ids.dtype.name) == ("uint64", "int32")
    for name in TIMELINE:
        one, other = (getattr(each.timeline, name) for each in (loaded, made))
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist())


def test_a_file_of_before_there_were_time_lines(saved: Path, made: Profile) -> None:
    def change(header: dict[str, Any], tensors: dict[str, Any]) -> None:
        for name in TIMELINE:
            del tensors[f"timeline.{name}"]

    loaded = Profile.load(rewritten(saved, change, "1.0"))
    assert loaded.timeline is None
    assert loaded.counts_sha256 == made.counts_sha256
    loaded.save(saved)
    assert Profile.load(saved).timeline is None


def test_a_time_line_of_other_counts_is_refused(saved: Path) -> None:
    def change(header: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["timeline.num_tokens"] = tensors["timeline.num_tokens"] + 1

    with pytest.raises(FileFormatError, match="blocks of the time line do not add up to the counts"):
        Profile.load(rewritten(saved, change))


def test_saving_again_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    Profile.load(saved).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_loaded_tables_are_read_only(saved: Path) -> None:
    loaded = Profile.load(saved)
    sample, timeline = loaded.windows[0].sample, loaded.timeline
    tables = (loaded.counts, loaded.windows[0].presence, sample.keys, sample.indptr, sample.ids, sample.counts)
    for array in (*tables, *(getattr(timeline, name) for name in TIMELINE)):
        assert not array.flags.writeable


def test_every_flipped_byte_of_the_tensors_is_detected(saved: Path) -> None:
    content = saved.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    for place in range(data, len(content), 7):
        saved.write_bytes(content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :])
        with pytest.raises(FileFormatError, match="is damaged"):
            Profile.load(saved)


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], version: str = VERSION) -> Path:
    """The same file with a changed header and tensors, and a digest that fits them."""
    header, tensors = load_tensor_file(path, KIND, VERSION)
    change(header, tensors)
    kept = {name: value for name, value in header.items() if name not in ("format", "version", "digest")}
    save_tensor_file(path, KIND, version, kept, tensors)
    return path


def test_unknown_major_version_is_an_error(saved: Path) -> None:
    with pytest.raises(FileFormatError, match=r"profile version 2\.0"):
        Profile.load(rewritten(saved, lambda header, tensors: None, "2.0"))


def test_parts_of_a_newer_minor_version_are_ignored_with_a_warning(saved: Path, made: Profile) -> None:
    def change(header: dict[str, Any], tensors: dict[str, Any]) -> None:
        header["weather"] = "fine"
        tensors["more"] = np.zeros(3)
        for row in header["sources"]:
            row["documents"] = 7
        header["tokenizer"]["kind"] = "BPE"

    with pytest.warns(UserWarning, match=r"version 1\.9, newer"):
        assert Profile.load(rewritten(saved, change, "1.9")).counts_sha256 == made.counts_sha256


@pytest.mark.parametrize(
    "missing", ["counts", "presence.2", "sample.3.keys", "windows", "sources", "sample_size", "seed", "dropped", "notes",
                "tokenizer", "timeline.ids", "timeline.loads"],
)  # fmt: skip
def test_missing_parts_are_named(missing: str, saved: Path) -> None:
    def change(header: dict[str, Any], tensors: dict[str, Any]) -> None:
        header.pop(missing, None)
        tensors.pop(missing, None)

    with pytest.raises(FileFormatError, match=f"not a complete profile: .*{missing}"):
        Profile.load(rewritten(saved, change))


def test_tables_of_different_vocabularies_are_refused(saved: Path) -> None:
    def change(header: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["presence.2"] = tensors["presence.2"][:-1]

    with pytest.raises(FileFormatError, match="presence for 2-token windows has 41 ids, counts 42"):
        Profile.load(rewritten(saved, change))


def test_a_failed_save_leaves_no_file(made: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError("disk full")

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="disk full"):
        made.save(tmp_path / "new.safetensors")
    assert sorted(tmp_path.iterdir()) == before


def test_target_in_a_missing_directory(made: Profile, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="make it first"):
        made.save(tmp_path / "nowhere" / "profile")


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 64, b"\x08\0\0\0\0\0\0\0{}      "])
def test_other_files_are_no_profiles(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(FileFormatError):
        Profile.load(tmp_path / "a")
