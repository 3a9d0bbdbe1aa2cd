"""`inspect` and `verify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import skewtool
from skewtool.cli.group import print_json, row_range
from skewtool.cli.options import CORPUS, JSON, PATH, corpus_options, open_part, tokenizer_file
from skewtool.cli.profiling import part_json, profile_json

if TYPE_CHECKING:
    from skewtool.corpus import Corpus
    from skewtool.sharding import ShardMap

__all__ = ["inspect", "verify"]


@click.command()
@click.argument("path", type=CORPUS)
@corpus_options
@click.option("--vocab-size", type=click.IntRange(min=1), help="Rows of the model's table, to hold the ids against.")
@JSON
def inspect(
    path: Path, part: tuple[float, float] | None, tokenizer: Path | None, allow: tuple[str, ...], vocab_size: int | None,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Tell what PATH is: a profile, a shard map, or a corpus, its format, sizes and what is doubtful about it."""
    from skewtool.storage import peek_header

    header = peek_header(path) if isinstance(path, Path) and path.is_file() else None
    if header is None:
        failed, corpus = _opened(path, part, allow, tokenizer=tokenizer, **options)
        found: dict[str, Any] = _corpus_json(corpus, failed, tokenizer, vocab_size)
    elif header["format"] == "profile":
        found = {"kind": "profile"} | profile_json(skewtool.Profile.load(path))
    elif header["format"] == "profile-part":
        from skewtool.profiling import Part

        found = {"kind": "profile-part"} | part_json(Part.load(path))
    else:
        found = {"kind": header["format"]} | map_json(skewtool.ShardMap.load(path))
    if as_json:
        return print_json(found)
    for key, value in found.items():
        click.echo(f"{key:<16} {_shown(value)}")
    return None


def _shown(value: object) -> object:
    """One line for a value: numbers with commas, lists and objects item by item."""
    if isinstance(value, list):
        return "; ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items() if each is not None)
    return f"{value:,}" if isinstance(value, int) else value


def _opened(
    path: Path, part: tuple[float, float] | None, allow: tuple[str, ...], **options: Any
) -> tuple[str | None, "Corpus"]:
    """(the check that failed, the corpus): with every check allowed if one fails, so that the rest is told, too."""
    from skewtool.corpus import CHECKS
    from skewtool.errors import CorpusError

    try:
        return None, open_part((path,), part, allow=allow, **options)
    except CorpusError as error:
        if set(CHECKS) <= set(allow):
            raise
        return str(error), open_part((path,), part, allow=tuple(CHECKS), **options)


def _corpus_json(
    corpus: "Corpus", failed: str | None, tokenizer: Path | None, vocab_size: int | None
) -> dict[str, Any]:  # fmt: skip
    from skewtool.corpus import glance

    known = tokenizer_file(tokenizer)
    rows = vocab_size if known is None or vocab_size is not None else known.num_ids
    first = glance(corpus, rows)
    return {
        "kind": "corpus",
        "format": corpus.format,
        "dtype": None if corpus.dtype is None else corpus.dtype.name,
        "num_tokens": corpus.num_tokens,
        "num_documents": corpus.num_documents,
        "num_bytes": corpus.num_bytes,
        "files": list(corpus.files),
        "first_ids": None if first is None else vars(first),
        "vocabulary": {
            "tokenizer": None if known is None else known.base_size,
            "with_added": None if known is None else known.size_with_added,
            "tokenizer_ids": None if known is None else known.num_ids,
            "rows": rows,
        },
        "failed_check": failed,
        "dropped": corpus.dropped,
        "notes": list(corpus.notes),
    }


def map_json(shard_map: "ShardMap") -> dict[str, Any]:
    """The documented keys of a shard map."""
    return {
        "shards": shard_map.num_shards,
        "vocab_size": shard_map.vocab_size,
        "real_vocab": shard_map.real_vocab,
        "home_slots": shard_map.home_slots,
        "rows_per_shard": row_range(shard_map.home_rows),
        "extra_rows_per_shard": shard_map.num_slots - shard_map.home_slots,
        "padding_slots": shard_map.num_shards * shard_map.home_slots - shard_map.vocab_size,
        "fingerprint": shard_map.fingerprint,
    }


@click.command()
@click.argument("map_file", metavar="MAP", type=PATH)
@JSON
def verify(map_file: Path, as_json: bool) -> None:
    """Check a MAP file: version, digest, and that every id has exactly one home."""
    shard_map = skewtool.ShardMap.load(map_file)
    if as_json:
        return print_json({"ok": True} | map_json(shard_map))
    click.echo(f"{map_file}: good. {shard_map!r}")
    return None
