"""Patterns in paths."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import open_corpus
from skewtool.corpus.paths import expand
from skewtool.errors import CorpusError, SkewtoolError


@pytest.mark.parametrize(("pattern", "expected"), [
    ("x/{a,b}.bin", ["x/a.bin", "x/b.bin"]),
    ("s-{08..11}.tar", ["s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar"]),
    ("s-{9..11}.tar", ["s-9.tar", "s-10.tar", "s-11.tar"]),
    ("s-{2..0}", ["s-2", "s-1", "s-0"]),
    ("{a,b{1..2}}/{x,y}", ["a/x", "a/y", "b1/x", "b1/y", "b2/x", "b2/y"]),
    ("{one}", ["{one}"]),
    ("a{", ["a{"]),
    ("{,x}a", ["a", "xa"]),
])  # fmt: skip
def test_braces(pattern: str, expected: list[str]) -> None:
    assert [str(path) for path, _ in expand(Path(pattern))] == expected


def test_names_begin_where_the_pattern_does() -> None:
    assert [name for _, name in expand(Path("/data/{web,code}/train-{0..1}.bin"))] == [
        "web/train-0.bin", "web/train-1.bin", "code/train-0.bin", "code/train-1.bin",
    ]  # fmt: skip


def test_wildcards_find_files_and_directories(
    tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    for number, name in enumerate(["a/x.bin", "b/x.bin", "b/c/y.bin", "b/.hidden.bin"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_raw(tmp_path / name, [number])
    for pattern, expected in (("*/x.bin", [0, 1]), ("**/*.bin", [0, 2, 1]), ("[ab]", [0, 2, 1]), ("{a,b/c}/?.bin", [0, 2])):
        corpus = open_corpus(tmp_path / pattern, dtype="uint16")
        assert sorted(ids_of(corpus)) == sorted(expected)
        assert len({source.name for source in corpus.sources}) == len(expected)
    with pytest.raises(CorpusError, match=r"nothing matches .*\*\.tar"):
        open_corpus(tmp_path / "*.tar")
    with pytest.raises(CorpusError, match=r"no file or directory .*gone\.bin"):
        open_corpus(tmp_path / "{a/x,gone}.bin", dtype="uint16")


def test_a_path_that_exists_is_no_pattern(
    tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    for number, name in enumerate(["a[1].bin", "a1.bin", "{x,y}.bin"]):
        write_raw(tmp_path / name, [number])
    assert ids_of(open_corpus(tmp_path / "a[1].bin", dtype="uint16")) == [0]
    assert ids_of(open_corpus(tmp_path / "{x,y}.bin", dtype="uint16")) == [2]


@pytest.mark.parametrize("pattern", ["{0..99999999999}", "{0..999}{0..999}{0..999}"])
def test_too_many_paths(pattern: str) -> None:
    with pytest.raises(CorpusError, match="more than 1000000 paths"):
        expand(Path(pattern))


@given(pattern=st.text(st.sampled_from("{}a,.0123*[]-"), min_size=1, max_size=12))
def test_any_pattern_ends(pattern: str) -> None:
    with contextlib.suppress(SkewtoolError):
        assert all(isinstance(path, Path) for path, _ in expand(Path(f"/nowhere/{pattern}")))
