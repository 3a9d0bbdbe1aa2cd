"""Who may import whom: every import statement of the package against one table."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import skewtool

ROOT = Path(skewtool.__file__).parent


@dataclass(frozen=True)
class May:
    """What a folder (or a module beside the folders) may import from the package, and from third parties."""

    package: tuple[str, ...]
    third_party: tuple[str, ...]


# Beside this, every folder may import skewtool.storage and skewtool.compiled.
TABLE = {
    "errors": May((), ()),
    "storage": May(("errors",), ("numpy", "safetensors")),
    "compiled": May((), ("numba",)),
    "corpus": May(("errors",), ("fsspec", "numpy", "orjson", "pyarrow", "tokenizers", "upath", "zstandard")),
    "profiling": May(("corpus", "errors"), ("numpy", "numba", "ray")),
    "sharding": May(("profiling", "errors"), ("numpy", "scipy", "numba")),
    "skew": May(("profiling", "sharding", "errors"), ("numpy", "scipy", "pandas")),
    "report": May(("skew", "sharding", "profiling", "errors"), ("matplotlib", "numpy")),
    "convert": May(("sharding", "corpus", "errors"), ("safetensors", "tokenizers", "numpy")),
    "parallel": May(("sharding", "errors"), ("torch",)),
    "bench": May(("parallel", "skew", "sharding", "profiling", "corpus", "errors"), ("torch", "numpy", "megatron")),
    "cli": May(
        ("corpus", "profiling", "sharding", "skew", "report", "convert", "parallel", "bench", "errors"),
        ("click", "numpy"),
    ),
    "__init__": May(("corpus", "errors", "profiling", "sharding", "skew"), ()),
}

ANY_FOLDER = ("storage", "compiled")

ONLY_NAMES = {
    ("sharding", "profiling"): {"Profile", "WindowSample", "WindowStatistics"},  # a Profile and its parts
    ("parallel", "sharding"): {"EVERY_SHARD", "GROUPS", "ONE_SLOT", "PASSES", "ShardMap", "SlotTable", "choose_slots"},
}
"""Names that one folder may take from another, where it may not take all."""

IN_ONE_MODULE = {
    *(("corpus", package) for package in ("orjson", "pyarrow", "tokenizers", "zstandard")),
    ("profiling", "ray"),
}
"""Packages that one module of a folder imports, when it needs them and not before."""


@dataclass(frozen=True)
class Import:
    """One imported module: by which file, in which line, which names of it, and whether at once or when needed."""

    file: Path
    line: int
    module: str
    names: tuple[str, ...]
    at_once: bool

    @property
    def folder(self) -> str:
        return self.file.relative_to(ROOT).parts[0].removesuffix(".py")

    @property
    def where(self) -> str:
        return f"{self.file.relative_to(ROOT.parent)}:{self.line} imports {self.module}"


def _walk(node: ast.AST, file: Path, at_once: bool = True) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = at_once and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            inside = False
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(file, child.lineno, alias.name, (), at_once)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{file}:{child.lineno} has a relative import"
            names = tuple(alias.name for alias in child.names)
            assert child.module is not None
            if child.module == "skewtool":
                for name in names:
                    yield Import(file, child.lineno, f"skewtool.{name}", (), at_once)
            else:
                yield Import(file, child.lineno, child.module, names, at_once)
        yield from _walk(child, file, inside)


IMPORTS = [each for file in sorted(ROOT.rglob("*.py")) for each in _walk(ast.parse(file.read_text(encoding="utf-8")), file)]
INSIDE = [each for each in IMPORTS if each.module.split(".")[0] == "skewtool" and each.module != "skewtool"]
OUTSIDE = [each for each in IMPORTS if each.module.split(".")[0] not in {"skewtool", "__future__", *sys.stdlib_module_names}]


def _target(each: Import) -> str:
    return each.module.split(".")[1]


def test_every_folder_is_in_the_table() -> None:
    found = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}
    assert found <= set(TABLE)
    assert len(IMPORTS) > 100


@pytest.mark.parametrize("folder", TABLE)
def test_folders_import_only_those_below_them(folder: str) -> None:
    allowed = {folder, *TABLE[folder].package}
    if folder not in ("errors", *ANY_FOLDER):
        allowed |= set(ANY_FOLDER)
    wrong = [each.where for each in INSIDE if each.folder == folder and _target(each) not in allowed]
    assert wrong == []


@pytest.mark.parametrize("folder", TABLE)
def test_folders_import_only_their_third_parties(folder: str) -> None:
    allowed = TABLE[folder].third_party
    wrong = [each.where for each in OUTSIDE if each.folder == folder and each.module.split(".")[0] not in allowed]
    assert wrong == []


def test_the_table_has_no_circle() -> None:
    below: dict[str, set[str]] = {}
    for folder in TABLE:
        waiting, seen = list(TABLE[folder].package), set[str]()
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting += TABLE[each].package
        below[folder] = seen
    assert [folder for folder, seen in below.items() if folder in seen] == []


@pytest.mark.parametrize(("folder", "other"), ONLY_NAMES)
def test_some_folders_know_little_of_others(folder: str, other: str) -> None:
    wrong = [
        f"{each.where} {each.names}"
        for each in INSIDE
        if each.folder == folder and _target(each) == other and not set(each.names) <= ONLY_NAMES[folder, other]
    ]
    assert wrong == []


@pytest.mark.parametrize(("folder", "package"), sorted(IN_ONE_MODULE))
def test_optional_packages_stay_in_one_module(folder: str, package: str) -> None:
    users = [each for each in OUTSIDE if each.folder == folder and each.module.split(".")[0] == package]
    assert len({each.file for each in users}) <= 1
    assert [each.where for each in users if each.at_once] == []


def test_remote_paths_are_loaded_for_urls_alone() -> None:
    assert {each.file.name for each in OUTSIDE if each.module.split(".")[0] in ("fsspec", "upath")} == {"remote.py"}
    assert [each.where for each in INSIDE if each.module == "skewtool.corpus.remote" and each.at_once] == []


def test_the_command_line_loads_heavy_packages_inside_commands() -> None:
    at_once = [each for each in IMPORTS if each.folder == "cli" and each.at_once]
    wrong = [
        each.where
        for each in at_once
        if each.module not in ("skewtool", "skewtool.errors", "click")
        and not each.module.startswith("skewtool.cli")
        and each.module.split(".")[0] not in sys.stdlib_module_names
    ]
    assert wrong == []


def test_only_those_who_must_know_torch() -> None:
    assert {each.folder for each in OUTSIDE if each.module.split(".")[0] == "torch"} <= {"parallel", "bench"}


def test_the_check_sees_what_it_should() -> None:
    code = "from skewtool import cli\nimport numpy\ndef f():\n    import torch\nif TYPE_CHECKING:\n    import ray.data\n"
    found = list(_walk(ast.parse(code), ROOT / "corpus" / "x.py"))
    assert [(each.module, each.at_once) for each in found] == [
        ("skewtool.cli", True), ("numpy", True), ("torch", False), ("ray.data", False),
    ]  # fmt: skip
    assert {each.folder for each in found} == {"corpus"}
