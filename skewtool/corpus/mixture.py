"""Mixtures: a JSON file that tells how much each of several corpora weighs in training.

    {"mixture": [{"path": "web", "weight": 0.7}, {"path": "code.bin", "weight": 0.3, "dtype": "uint16"}],
     "tokens": 1000000}

Paths are relative to the file, or URLs; `dtype`, `format` and `column` may be given for each. The mixture holds as many
tokens as its corpora together, or `tokens`; each corpus gives its share of them, from its beginning, and again from its
beginning when it is used up, as training does. So counts stay whole numbers, and windows are real ones.
"""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from skewtool.corpus.corpus import Corpus
from skewtool.corpus.locations import is_url, location
from skewtool.corpus.source import Source
from skewtool.errors import CorpusError

__all__ = ["open_mixture"]

_KEYS = {"path", "weight", "dtype", "format", "column"}
_MOST_ROUNDS = 10_000

Open = Callable[..., Corpus]


def open_mixture(path: Path, open_one: Open) -> Corpus:
    """The corpus that a mixture file stands for; `open_one(path, dtype=, format=, column=)` opens each of its corpora.

    Errors: CorpusError for a file that is not as above, and for corpora whose sizes only reading them would tell.
    """
    described = _read(path)
    parts = [_open_part(path, each, open_one) for each in described["mixture"]]
    weights = [float(each["weight"]) for each in described["mixture"]]
    total = described.get("tokens", sum(part.num_tokens or 0 for part in parts))
    sources: list[Source] = []
    for number, (part, weight) in enumerate(zip(parts, weights, strict=True)):
        sources += _share(part, round(total * weight / math.fsum(weights)), path, f"{number}:")
    if not sources:
        raise CorpusError(f"{path} gives no tokens: {total} in all")
    first = parts[0]
    return replace(
        first,
        sources=tuple(sources),
        empty_files=tuple(name for part in parts for name in part.empty_files),
        ignored_files=tuple(name for part in parts for name in part.ignored_files),
        left_out=tuple(each for part in parts for each in part.left_out),
    )


def _read(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    try:
        described = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path} is no mixture file: no JSON ({error})") from None
    listed = described.get("mixture") if isinstance(described, dict) else None
    if not isinstance(listed, list) or not listed or not all(isinstance(each, dict) for each in listed):
        raise CorpusError(f"{path} is no mixture file: 'mixture' must be a list of objects with a path and a weight")
    assert isinstance(described, dict)
    for each in listed:
        weight = each.get("weight")
        if not isinstance(each.get("path"), str) or isinstance(weight, bool) or not isinstance(weight, int | float):
            raise CorpusError(f"{path}: each corpus needs a path and a weight, a number; found {json.dumps(each)[:80]}")
        if not 0 < weight < math.inf or set(each) - _KEYS:
            wrong = ", ".join(sorted(set(each) - _KEYS)) or f"weight {weight}"
            raise CorpusError(f"{path}: {each['path']} has {wrong}; weights are above 0, known keys are {sorted(_KEYS)}")
    tokens = described.get("tokens", 1)
    if type(tokens) is not int or tokens < 1 or set(described) - {"mixture", "tokens"}:
        raise CorpusError(f"{path}: beside 'mixture' there may be 'tokens', a whole number; found {sorted(described)}")
    return described


def _open_part(path: Path, each: dict[str, Any], open_one: Open) -> Corpus:
    options = {key: each[key] for key in ("dtype", "format", "column") if key in each}
    if not all(isinstance(value, str) for value in options.values()):
        raise CorpusError(f"{path}: dtype, format and column are strings; found {json.dumps(options)[:80]}")
    part = open_one(location(each["path"]) if is_url(each["path"]) else path.parent / each["path"], **options)
    if not part.num_tokens or not all(source.seekable for source in part.sources):
        raise CorpusError(f"{path}: how many tokens {each['path']} has is unknown before all is read; write it as ids first")
    return part


def _share(part: Corpus, num_tokens: int, path: Path, prefix: str) -> list[Source]:
    """`num_tokens` of a corpus, in as many rounds over it as that takes. Names tell the rounds apart."""
    assert part.num_tokens is not None
    rounds, rest = divmod(num_tokens, part.num_tokens)
    if rounds > _MOST_ROUNDS:
        raise CorpusError(f"{path}: {part.files[0]} would be read {rounds} times; lower its weight or 'tokens'")
    whole = [part.sources] * rounds + ([part.part(0, rest / part.num_tokens).sources] if rest else [])
    return [
        replace(source, name=f"{prefix}{source.name}" + (f"#{number}" if number > 1 else ""))
        for number, sources in enumerate(whole, start=1)
        for source in sources
    ]
