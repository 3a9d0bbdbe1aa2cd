"""The map file: its bytes, and every way in which a file can be damaged, foreign or too new."""

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from skewtool import Profile, ShardMap, SkewtoolError, partition
from skewtool.errors import FileFormatError, MapError
from skewtool.sharding.shard_map_file import KIND, VERSION, load_shard_map, save_shard_map
from skewtool.storage import save_tensor_file

GOLDEN = Path(__file__).parents[1] / "golden" / "shard_map_v1.safetensors"
GOLDEN_COUNTS = [50, 30, 5, 5, 4, 3, 2, 1, 0, 0]
GOLDEN_TOKEN_AT = [[0, 9, -1], [1, 8, -1], [2, 4, 7], [3, 5, 6]]

HEADER: dict[str, Any] = {"home_slots": 2, "vocab_size": 4, "real_vocab": 4}


def _small() -> ShardMap:
    return ShardMap(np.array([[0, 1], [2, 3]], np.int32), 2, 4, 4)


def _write(path: Path, token_at: Any = ((0, 1), (2, 3)), version: str = VERSION, **changed: Any) -> Path:
    """A file with a right digest, whatever it says."""
    header = {**HEADER, "fingerprint": _small().fingerprint, **changed}
    save_tensor_file(path, KIND, version, header, {"token_at": np.asarray(token_at, np.int32)})
    return path


def test_golden_file_loads_as_it_always_did() -> None:
    shard_map = ShardMap.load(GOLDEN)
    assert shard_map.token_at.tolist() == GOLDEN_TOKEN_AT
    assert (shard_map.home_slots, shard_map.vocab_size, shard_map.real_vocab) == (3, 10, 10)
    assert shard_map.shard_of.tolist() == [0, 1, 2, 3, 2, 3, 3, 2, 1, 0]


def test_golden_file_is_reproduced_byte_for_byte(tmp_path: Path) -> None:
    partition(GOLDEN_COUNTS, 4).save(tmp_path / "made.safetensors")
    assert (tmp_path / "made.safetensors").read_bytes() == GOLDEN.read_bytes()
    ShardMap.load(GOLDEN).save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == GOLDEN.read_bytes()


def test_the_file_is_plain_safetensors_for_any_reader() -> None:
    with safe_open(GOLDEN, framework="numpy") as file:
        assert list(file.keys()) == ["token_at"]
        assert file.get_tensor("token_at").dtype == np.int32
        header = json.loads(file.metadata()["skewtool"])
    assert header["format"] == "shard-map"
    assert header["version"] == "1.0"
    assert set(header) >= {"digest", "home_slots", "vocab_size", "real_vocab", "fingerprint"}


def test_the_fingerprint_is_of_the_meaning_alone() -> None:
    array = np.array(GOLDEN_TOKEN_AT, "<i4")
    expected = hashlib.sha256(b"shard-map (4, 3) 3 10 10\n" + array.tobytes()).hexdigest()
    assert ShardMap.load(GOLDEN).fingerprint == expected


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_saving_and_loading_changes_nothing(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    num_shards = data.draw(st.integers(1, 6))
    shard_of = data.draw(st.lists(st.integers(0, num_shards - 1), min_size=1, max_size=30))
    real_vocab = data.draw(st.integers(1, len(shard_of)))
    made = ShardMap.from_homes(np.array(shard_of), num_shards, real_vocab=real_vocab, pad_to=data.draw(st.integers(1, 4)))
    folder = tmp_path_factory.mktemp("maps")
    made.save(folder / "a.safetensors")
    loaded = ShardMap.load(folder / "a.safetensors")
    loaded.save(str(folder / "b.safetensors"))
    assert loaded == made
    assert (loaded.token_at == made.token_at).all()
    assert (loaded.home_slots, loaded.vocab_size, loaded.real_vocab) == (made.home_slots, len(shard_of), real_vocab)
    assert (folder / "a.safetensors").read_bytes() == (folder / "b.safetensors").read_bytes()


def test_copies_survive_the_file(tmp_path: Path) -> None:
    made = ShardMap(np.array([[0, 3, 4, -1], [1, -1, 4, -1], [2, 4, 0, -1]]), 2, 5, 4)
    made.save(tmp_path / "m.safetensors")
    loaded = ShardMap.load(tmp_path / "m.safetensors")
    assert loaded == made
    assert loaded.num_copies.tolist() == [1, 0, 0, 0, 2]


@pytest.mark.parametrize("whole", [np.int32, np.int64, np.uint16])
def test_sizes_may_be_numpy_integers(tmp_path: Path, whole: type[np.integer[Any]]) -> None:
    plain = ShardMap(np.array([[0, 1], [2, 3]]), 2, 4, 3)
    same = ShardMap(np.array([[0, 1], [2, 3]]), whole(2), whole(4), whole(3))  # type: ignore[arg-type]
    assert same == plain
    same.save(tmp_path / "m.safetensors")
    assert ShardMap.load(tmp_path / "m.safetensors") == plain


@pytest.mark.parametrize("option", ["real_vocab", "pad_to"])
def test_partition_options_may_be_numpy_integers(tmp_path: Path, option: str) -> None:
    made = partition([5, 4, 3, 2, 0, 0], 2, **{option: np.int64(4)})  # type: ignore[arg-type]
    made.save(tmp_path / "m.safetensors")
    assert ShardMap.load(tmp_path / "m.safetensors") == partition([5, 4, 3, 2, 0, 0], 2, **{option: 4})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*newer than")  # a flip can make 1.0 to 1.1
def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    good = GOLDEN.read_bytes()
    path = tmp_path / "m.safetensors"
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bytes(bad))
        with pytest.raises(SkewtoolError, match=r"m\.safetensors"):
            ShardMap.load(path)


def test_every_cut_is_found(tmp_path: Path) -> None:
    good = GOLDEN.read_bytes()
    path = tmp_path / "m.safetensors"
    for length in range(0, len(good), 7):
        path.write_bytes(good[:length])
        with pytest.raises(FileFormatError, match=r"m\.safetensors"):
            ShardMap.load(path)
    path.write_bytes(good + b"\0\0\0\0")
    with pytest.raises(FileFormatError):
        ShardMap.load(path)


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no file"):
        ShardMap.load(tmp_path / "absent.safetensors")
    with pytest.raises(FileFormatError, match="is not a file"):
        ShardMap.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x80\x04\x95", b"PK\x03\x04", b"\0" * 64, b"ids,shards\n0,1\n" * 9])
def test_foreign_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"m\.safetensors") as caught:
        ShardMap.load(tmp_path / "m.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"format": "pt"},
        {"skewtool": "not json"},
        {"skewtool": "[1]"},
        {"skewtool": "{}"},
        {"skewtool": '{"format": "shard-map"}'},
        {"skewtool": '{"format": 1, "version": 1, "digest": 1}'},
    ],
)
def test_safetensors_of_others_are_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"token_at": np.zeros((1, 1), np.int32)}, tmp_path / "m.safetensors", metadata=metadata)
    with pytest.raises(FileFormatError, match=r"m\.safetensors"):
        ShardMap.load(tmp_path / "m.safetensors")


def test_a_profile_is_not_a_map(tmp_path: Path, profile_of: Callable[..., Profile]) -> None:
    profile_of([0, 1, 2], 4).save(tmp_path / "p.safetensors")
    with pytest.raises(FileFormatError, match="is a skewtool profile file, expected a shard-map"):
        ShardMap.load(tmp_path / "p.safetensors")
    _small().save(tmp_path / "m.safetensors")
    with pytest.raises(FileFormatError, match="is a skewtool shard-map file, expected a profile"):
        Profile.load(tmp_path / "m.safetensors")


@pytest.mark.parametrize(("version", "way_out"), [("2.0", "upgrade skewtool"), ("0.9", "write the file again")])
def test_another_major_version_is_refused(tmp_path: Path, version: str, way_out: str) -> None:
    with pytest.raises(FileFormatError, match=f"version {version}.*{way_out}"):
        ShardMap.load(_write(tmp_path / "m.safetensors", version=version))


@pytest.mark.parametrize("version", ["", "1", "1.0.0", "one.two", "1.x"])
def test_an_unreadable_version_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(FileFormatError, match="version"):
        ShardMap.load(_write(tmp_path / "m.safetensors", version=version))


def test_a_newer_minor_version_is_read_with_a_warning(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.safetensors", version="1.7", from_the_future=True)
    with pytest.warns(UserWarning, match=r"1\.7, newer than"):
        assert ShardMap.load(path) == _small()


@pytest.mark.parametrize("key", ["home_slots", "vocab_size", "real_vocab", "fingerprint"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    header = {**HEADER, "fingerprint": _small().fingerprint}
    del header[key]
    save_tensor_file(tmp_path / "m.safetensors", KIND, VERSION, header, {"token_at": _small().token_at})
    with pytest.raises(FileFormatError, match=key):
        ShardMap.load(tmp_path / "m.safetensors")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    header = {**HEADER, "fingerprint": _small().fingerprint}
    save_tensor_file(tmp_path / "m.safetensors", KIND, VERSION, header, {"tokens": _small().token_at})
    with pytest.raises(FileFormatError, match="token_at"):
        ShardMap.load(tmp_path / "m.safetensors")


@pytest.mark.parametrize("key", ["home_slots", "vocab_size", "real_vocab"])
@pytest.mark.parametrize("value", ["2", None, [2], 2.5])
def test_a_value_of_another_type_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(SkewtoolError, match=r"m\.safetensors"):
        ShardMap.load(_write(tmp_path / "m.safetensors", **{key: value}))


def test_a_broken_map_in_a_sound_file_is_named_with_the_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.safetensors", token_at=[[0, 1], [2, 1]])
    with pytest.raises(MapError, match=r"m\.safetensors.*id 1 has 2 homes|id 1 has 2 homes.*m\.safetensors"):
        ShardMap.load(path)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_another_tensor_type_is_read_or_refused_by_name(tmp_path: Path, dtype: type[np.generic]) -> None:
    header = {**HEADER, "fingerprint": _small().fingerprint}
    tensors = {"token_at": _small().token_at.astype(dtype)}
    save_tensor_file(tmp_path / "m.safetensors", KIND, VERSION, header, tensors)
    if dtype is np.float32:
        with pytest.raises(SkewtoolError, match=r"m\.safetensors.*float32"):
            ShardMap.load(tmp_path / "m.safetensors")
    else:
        assert ShardMap.load(tmp_path / "m.safetensors") == _small()


def test_another_fingerprint_is_found(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="fingerprint"):
        ShardMap.load(_write(tmp_path / "m.safetensors", fingerprint="0" * 64))


def test_saving_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"old")
    _small().save(path)
    save_shard_map(_small(), path)
    assert load_shard_map(path) == _small()
    assert [each.name for each in tmp_path.iterdir()] == ["m.safetensors"]


def test_saving_where_it_cannot_be_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no directory"):
        _small().save(tmp_path / "absent" / "m.safetensors")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileFormatError, match="is a directory"):
        _small().save(tmp_path / "folder")
    assert [each.name for each in tmp_path.rglob("*")] == ["folder"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    _small().save(path)
    before = path.read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space"):
            partition([1, 2, 3], 2).save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["m.safetensors"]


def test_loading_says_nothing_of_a_good_file() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ShardMap.load(GOLDEN)
    assert not caught
