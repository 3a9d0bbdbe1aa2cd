"""Options and arguments that several commands take, and what they are parsed into."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import skewtool
from skewtool.errors import SkewtoolError

if TYPE_CHECKING:
    from skewtool.corpus import Corpus, TokenizerFile
    from skewtool.sharding import ShardMap

__all__ = [
    "AGAINST",
    "BYTES_PER_ELEMENT",
    "CORPUS",
    "JSON",
    "PATH",
    "CorpusPath",
    "against_names",
    "check_output",
    "corpus_options",
    "layout_names",
    "numbers",
    "open_part",
    "tokenizer_file",
]

BYTES_PER_ELEMENT = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
"""Of each type that tables have."""

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


class CorpusPath(click.Path):
    """A path, or a URL, whose two slashes `pathlib` would make one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Errors: CorpusError for a URL when what it needs is not installed."""
        from skewtool.corpus.locations import location

        return location(value)


CORPUS = CorpusPath()
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Whole numbers separated by commas."""
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers such as 8192 or 4096,8192") from None


def part_of(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """Two fractions or percentages: 0:80%."""
    if value is None:
        return None
    try:
        start, stop = (_fraction(part) for part in value.split(":"))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no part such as 0:80% or 0.8:1") from None
    return start, stop


def _fraction(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def corpus_options(function: F) -> F:
    """The options that say how a corpus is read: `open_part` takes them."""
    from skewtool.corpus.checks import CHECKS
    from skewtool.corpus.opening import FORMATS

    for option in (
        click.option("--allow", multiple=True, metavar="CHECK",
                     help=f"Go on after a failed check: {', '.join(CHECKS)}."),
        click.option("--part", callback=part_of, metavar="START:STOP", help="Only this part of the tokens, as 0:80%."),
        click.option("--column", help="Column, field or array with the ids (default: input_ids, tokens, …) or the text."),
        click.option("--tokenizer", type=PATH, help="tokenizer.json, to turn text into ids and to know the vocabulary."),
        click.option("--dtype", help="Type of header-less ids: uint16, uint32, int32, …"),
        click.option("--format", type=click.Choice(FORMATS), help="Instead of telling it by content."),
    ):  # fmt: skip
        function = option(function)
    return function


def check_output(output: Path, *inputs: Path | None) -> None:
    """Refuses, before any work, an output that cannot be written or that is one of the inputs."""
    from skewtool.storage import check_target

    check_target(output)
    for each in inputs:
        # A remote one is no Path.
        if isinstance(each, Path) and each.exists() and output.exists() and output.samefile(each):
            raise SkewtoolError(f"the output {output} is one of the inputs and would replace it; give another name")


def open_part(paths: tuple[Path, ...], part: tuple[float, float] | None, **options: Any) -> "Corpus":
    """The corpus at `paths`, or a part of it."""
    corpus = skewtool.open_corpus(paths, **options)
    return corpus if part is None else corpus.part(*part)


def tokenizer_file(path: Path | None) -> "TokenizerFile | None":
    """The tokenizer at a path, if any."""
    from skewtool.corpus import TokenizerFile

    return None if path is None else TokenizerFile(path)


def layout_names(maps: tuple[Path, ...], against: list[str]) -> dict[str, "ShardMap"]:
    """Maps by the stem of their file, by the whole path where that is the name of another layout."""
    stems = [path.stem for path in maps]
    return {
        path.stem if [*stems, *against].count(path.stem) == 1 else str(path): skewtool.ShardMap.load(path)
        for path in maps
    }  # fmt: skip


def against_names(names: str) -> list[str]:
    """Layout names separated by commas."""
    return [name for name in names.split(",") if name]


AGAINST = click.option("--against", default="contiguous,strided,hidden", show_default=True,
                       help="Layouts to compare with: strategies and hidden.")  # fmt: skip
