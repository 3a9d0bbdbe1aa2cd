"""`inspect` and `verify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import skewtool
from skewtool.cli.group import print_json, row_range
from skewtool.cli.options import JSON, PATH, corpus_options, open_part
from skewtool.cli.profiling import profile_json

if TYPE_CHECKING:
    from skewtool.corpus import Corpus
    from skewtool.sharding import ShardMap

__all__ = ["inspect", "verify"]


@click.command()
@click.argument("path", type=PATH)
@corpus_options
@JSON
def inspect(path: Path, part: tuple[float, float] | None, as_json: bool, **options: Any) -> None:
    """Tell what PATH is: a profile, a shard map, or a corpus and its format."""
    from skewtool.storage import peek_header

    header = peek_header(path) if path.is_file() else None
    if header is None:
        found: dict[str, Any] = _corpus_json(open_part((path,), part, **options))
    elif header["format"] == "profile":
        found = {"kind": "profile"} | profile_json(skewtool.Profile.load(path))
    else:
        found = {"kind": header["format"]} | map_json(skewtool.ShardMap.load(path))
    if as_json:
        return print_json(found)
    for key, value in found.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        click.echo(f"{key:<16} {'; '.join(map(str, value)) if isinstance(value, list) else shown}")
    return None


def _corpus_json(corpus: "Corpus") -> dict[str, Any]:
    return {
        "kind": "corpus",
        "format": corpus.format,
        "dtype": None if corpus.dtype is None else corpus.dtype.name,
        "num_tokens": corpus.num_tokens,
        "num_documents": corpus.num_documents,
        "num_bytes": corpus.num_bytes,
        "files": list(corpus.files),
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
