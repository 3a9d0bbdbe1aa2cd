"""Tensor files: equal content gives equal bytes, every damage is met with FileFormatError, and nothing half written."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from skewtool.errors import FileFormatError
from skewtool.storage import canonical_json, check_target, load_tensor_file, peek_header, replacing, save_tensor_file

TENSORS: dict[str, npt.NDArray[Any]] = {
    "counts": np.array([5, 0, 2**40], np.int64),
    "keys": np.array([2**64 - 1], np.uint64),
    "none": np.empty(0, np.int32),
    "matrix": np.arange(6, dtype=np.int32).reshape(2, 3),
}
HEADER = {"notes": ['naïve "quoted" \\ note'], "number": 19999, "nothing": None}

shared_tmp_path = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)


def written(path: Path, version: str = "1.0", kind: str = "profile", **header: object) -> Path:
    save_tensor_file(path, kind, version, HEADER | header, TENSORS)
    return path


def _write_half(path: Path) -> None:
    path.write_bytes(b"half")
    raise OSError("disk full")


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    digest = save_tensor_file(tmp_path / "a", "profile", "1.0", HEADER, TENSORS)
    header, tensors = load_tensor_file(tmp_path / "a", "profile", "1.0")
    assert header == {"format": "profile", "version": "1.0", "digest": digest, **HEADER}
    assert set(tensors) == set(TENSORS)
    for name, tensor in tensors.items():
        assert tensor.dtype == TENSORS[name].dtype
        np.testing.assert_array_equal(tensor, TENSORS[name])


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    turned = {name: np.asfortranarray(TENSORS[name]) for name in reversed(TENSORS)}
    save_tensor_file(tmp_path / "b", "profile", "1.0", dict(reversed(HEADER.items())), turned)
    assert (tmp_path / "b").read_bytes() == written(tmp_path / "a").read_bytes()


def test_digest_is_of_names_types_shapes_and_values(tmp_path: Path) -> None:
    def digest(header: Mapping[str, object], **tensors: npt.NDArray[Any]) -> str:
        return save_tensor_file(tmp_path / "a", "profile", "1.0", header, tensors)

    row = np.zeros(4, np.int32)
    digests = [
        digest({}, x=row), digest({}, y=row), digest({}, x=row.view(np.float32)), digest({}, x=row.reshape(2, 2)),
        digest({}, x=row + 1), digest({"n": 1}, x=row), digest({}, x=row, y=row),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)


def test_another_major_version_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"version 2\.0; this skewtool reads 1\.x: upgrade"):
        load_tensor_file(written(tmp_path / "a", "2.0"), "profile", "1.4")
    with pytest.raises(FileFormatError, match=r"reads 2\.x: write the file again"):
        load_tensor_file(written(tmp_path / "a", "1.9"), "profile", "2.0")


def test_a_newer_minor_version_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"version 1\.5, newer than 1\.4"):
        load_tensor_file(written(tmp_path / "a", "1.5"), "profile", "1.4")
    load_tensor_file(written(tmp_path / "a", "1.3"), "profile", "1.4")


@pytest.mark.parametrize("version", ["1", "1.0.0", "one.two", "", "1."])
def test_an_unreadable_version_is_an_error(version: str, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="unreadable profile version"):
        load_tensor_file(written(tmp_path / "a", version), "profile", "1.0")


def test_another_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="a skewtool shard-map file, expected a profile file"):
        load_tensor_file(written(tmp_path / "a", kind="shard-map"), "profile", "1.0")


@pytest.mark.parametrize(
    "metadata", [None, {}, {"format": "pt"}, {"skewtool": "{"}, {"skewtool": "[1]"}, {"skewtool": "{}"}]
)
def test_other_safetensors_files(metadata: dict[str, str] | None, tmp_path: Path) -> None:
    save_file({"x": np.zeros(2)}, tmp_path / "a", metadata)
    with pytest.raises(FileFormatError):
        load_tensor_file(tmp_path / "a", "profile", "1.0")
    assert peek_header(tmp_path / "a") is None


def test_header_of_any_file(tmp_path: Path) -> None:
    assert (peek_header(written(tmp_path / "a")) or {})["number"] == 19999
    (tmp_path / "b").write_text("text")
    assert [peek_header(tmp_path / name) for name in ("b", "nowhere", "")] == [None, None, None]


@pytest.mark.parametrize(("name", "message"), [("nowhere", "there is no file"), ("", "is not a file")])
def test_no_file(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=message):
        load_tensor_file(tmp_path / name, "profile", "1.0")


@shared_tmp_path
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_anywhere_is_detected(place: float, flip: int, tmp_path: Path) -> None:
    content = bytearray(written(tmp_path / "a").read_bytes())
    content[int(place * len(content))] ^= flip
    (tmp_path / "a").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a flipped minor version
        with pytest.raises(FileFormatError):
            load_tensor_file(tmp_path / "a", "profile", "1.0")


def test_every_byte_of_the_tensors_is_covered(tmp_path: Path) -> None:
    content = written(tmp_path / "a").read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    assert len(content) - data == sum(tensor.nbytes for tensor in TENSORS.values())
    for place in range(data, len(content)):
        (tmp_path / "a").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(FileFormatError, match="is damaged: its content has digest"):
            load_tensor_file(tmp_path / "a", "profile", "1.0")


@shared_tmp_path
@given(kept=st.floats(0, 1, exclude_max=True))
@example(kept=0.0)
def test_a_truncated_file_is_detected(kept: float, tmp_path: Path) -> None:
    content = written(tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(content[: int(kept * len(content))])
    with pytest.raises(FileFormatError):
        load_tensor_file(tmp_path / "a", "profile", "1.0")


@pytest.mark.parametrize("number", ["1e999", "-1e99", "1.999"])
def test_a_damaged_number_in_the_header_is_detected(number: str, tmp_path: Path) -> None:
    content = written(tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(content.replace(b"19999", number.encode()))
    with pytest.raises(FileFormatError):
        load_tensor_file(tmp_path / "a", "profile", "1.0")


@pytest.mark.parametrize("before", [None, b"old content"])
def test_a_failed_save_leaves_what_was_there(before: bytes | None, tmp_path: Path) -> None:
    target = tmp_path / "a"
    if before is not None:
        target.write_bytes(before)
    with pytest.raises(OSError, match="disk full"), replacing(target) as temporary:
        _write_half(temporary)
    assert [path.name for path in tmp_path.iterdir()] == ([] if before is None else ["a"])
    assert before is None or target.read_bytes() == before


def test_a_file_is_written_beside_its_target(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as temporary:
        temporary.write_bytes(b"new")
        assert temporary.parent == tmp_path
        assert not (tmp_path / "a").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="make it first"):
        check_target(tmp_path / "nowhere" / "a")
    with pytest.raises(FileFormatError, match="it is a directory"):
        check_target(tmp_path)
    with pytest.raises(FileFormatError, match="make it first"):
        written(tmp_path / "nowhere" / "a")


def test_json_has_one_form_and_no_nan() -> None:
    assert canonical_json({"b": [1, None], "a": "é"}) == '{"a":"é","b":[1,null]}'
    assert json.loads(canonical_json(HEADER)) == HEADER
    with pytest.raises(ValueError):
        canonical_json(float("nan"))
