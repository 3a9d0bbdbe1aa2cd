"""What each package and module offers: `__all__` is complete, resolves, and costs nothing that is heavy."""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skewtool

ROOT = Path(skewtool.__file__).parent
HEAVY = ("torch", "matplotlib", "pandas", "pyarrow", "ray")
NEEDS_AN_EXTRA = ("parallel", "bench")  # torch


def _name(path: Path) -> str:
    parts = ["skewtool", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_name(path): path for path in sorted(ROOT.rglob("*.py"))}
PACKAGES = [name for name, path in FILES.items() if path.name == "__init__.py" and name != "skewtool"]


def _import(name: str) -> Any:
    if name.split(".")[1:2] and name.split(".")[1] in NEEDS_AN_EXTRA:
        pytest.importorskip("torch")
    return importlib.import_module(name)


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """Name -> module, for each `from skewtool... import name`."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("skewtool")
        for alias in node.names
    }


@pytest.mark.parametrize("name", FILES)
def test_every_module_says_what_it_offers(name: str) -> None:
    module = _import(name)
    assert isinstance(module.__all__, list), f"{name} has no __all__"
    assert len(set(module.__all__)) == len(module.__all__)
    for each in module.__all__:
        assert not each.startswith("_") or each == "__version__"
        assert getattr(module, each) is not None
    assert module.__doc__


@pytest.mark.parametrize("name", [name for name in PACKAGES if name != "skewtool.cli"])  # offers `main` alone
def test_a_package_offers_what_it_imports_from_its_modules(name: str) -> None:
    package = _import(name)
    imported = _imported_names(ast.parse(FILES[name].read_text(encoding="utf-8")))
    assert set(package.__all__) == set(imported)
    for each, home in imported.items():
        assert home.startswith(f"{name}."), f"{each} comes from {home}"
        module = _import(home)
        assert each in module.__all__, f"{home}.__all__ lacks {each}"
        assert getattr(package, each) is getattr(module, each)


def test_skewtool_offers_what_its_readme_names() -> None:
    assert set(skewtool.__all__) >= {
        "Corpus", "Profile", "ShardMap", "SkewtoolError", "measure_skew", "merge", "open_corpus", "partition", "profile",
    }  # fmt: skip
    assert set(dir(skewtool)) == set(skewtool.__all__)
    for name in skewtool.__all__:
        assert getattr(skewtool, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        skewtool.absent  # noqa: B018


def test_names_loaded_late_are_those_that_type_checkers_see() -> None:
    seen = _imported_names(ast.parse(FILES["skewtool"].read_text(encoding="utf-8")))
    assert set(seen) == set(skewtool.__all__) - {"__version__"}
    for name, home in seen.items():
        assert getattr(skewtool, name) is getattr(importlib.import_module(home), name)


LOADED = """
import sys
{code}
print(sorted({{name.split(".")[0] for name in sys.modules}} & set(sys.argv[1:])))
"""


@pytest.mark.parametrize(
    "code",
    [
        "import skewtool",
        "import skewtool.cli",
        "import skewtool; skewtool.open_corpus, skewtool.Profile, skewtool.profile, skewtool.merge",
        "import skewtool; skewtool.partition([3, 2, 1], 2)",
    ],
)
def test_heavy_packages_are_not_loaded(run_python: Callable[..., Any], code: str) -> None:
    done = run_python(LOADED.format(code=code), *HEAVY)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
