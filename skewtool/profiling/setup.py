"""`Setup`: what is counted and how, checked before anything is read."""

import hashlib
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module

from skewtool.corpus import Corpus, Source, TokenizerFile
from skewtool.errors import ProfileError
from skewtool.profiling.checks import ALLOWABLE, check_dtype_holds_vocabulary
from skewtool.profiling.places import Place, place
from skewtool.profiling.profile import TokenizerSizes
from skewtool.storage import canonical_json

__all__ = ["DEFAULT_WINDOWS", "MOST_IDS", "Setup", "checked_setup", "whole_number"]

DEFAULT_WINDOWS = (8192,)

MOST_IDS = 1 << 28
"""A table of more rows is no vocabulary but a wrong dtype."""


@dataclass(frozen=True)
class Setup:
    """What is counted, and how. `corpus` is a digest of all that is known of its sources but where they lie; `first` and
    `last` are its ends; `empty` are sources without tokens; `dropped` and `notes` were known before counting."""

    version: str
    corpus: str
    first: Place
    last: Place
    vocab_size: int | None
    windows: tuple[int, ...]
    sample_size: int
    seed: int
    allow: tuple[str, ...]
    tokenizer: TokenizerSizes | None
    empty: tuple[str, ...]
    dropped: Mapping[str, int]
    notes: tuple[str, ...]

    def difference(self, other: "Setup") -> str | None:
        """What differs first, with both values; None when parts of the two belong together."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine != theirs:
                name = _IN_WORDS.get(field.name, field.name)
                return name if field.name in ("corpus", "tokenizer") else f"{name}: {_shown(mine)} and {_shown(theirs)}"
        return None


_IN_WORDS = {
    "version": "versions of skewtool",
    "corpus": "corpora, or files of other sizes",
    "vocab_size": "vocabulary sizes",
    "windows": "window lengths",
    "sample_size": "sample sizes",
    "seed": "sample seeds",
    "allow": "allowed checks",
    "tokenizer": "tokenizers",
}


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return "none" if value is None else value


def checked_setup(
    corpus: Corpus,
    *,
    vocab_size: int | None = None,
    tokenizer: TokenizerFile | None = None,
    windows: Sequence[int] = DEFAULT_WINDOWS,
    sample_size: int = 1024,
    seed: int = 0,
    allow: Collection[str] = (),
) -> Setup:
    """What `profile` would count with these options. Errors: those of `profile` that show before anything is read."""
    unknown = set(allow) - set(ALLOWABLE)
    if unknown:
        raise ProfileError(f"unknown check {sorted(unknown)[0]!r} to allow; known are {', '.join(ALLOWABLE)}")
    vocab_size = None if vocab_size is None else whole_number("vocab_size", vocab_size, most=MOST_IDS)
    sample_size, seed = whole_number("sample_size", sample_size), whole_number("seed", seed)
    lengths = tuple(sorted({whole_number("window", length, most=2**31 - 1) for length in windows}))
    if (lengths and lengths[0] < 1) or sample_size < 0 or not (vocab_size is None or vocab_size > 0):
        raise ProfileError(
            "window lengths and vocabulary size must be at least 1, sample size at least 0; "
            f"got {list(windows)}, {vocab_size}, {sample_size}"
        )
    if tokenizer is not None:
        vocab_size = _checked_rows(vocab_size, tokenizer)
    notes = () if vocab_size is None else check_dtype_holds_vocabulary(corpus, vocab_size, allow)
    sizes = None if tokenizer is None else TokenizerSizes(
        tokenizer.fingerprint, tokenizer.base_size, tokenizer.size_with_added, tokenizer.num_ids
    )  # fmt: skip
    return _setup_of(corpus, vocab_size, lengths, sample_size, seed, allow, sizes, notes)


def _setup_of(
    corpus: Corpus, vocab_size: int | None, windows: Sequence[int], sample_size: int, seed: int, allow: Iterable[str],
    tokenizer: TokenizerSizes | None, notes: Iterable[str],
) -> Setup:  # fmt: skip
    """The setup of counting a corpus; `notes` beside the corpus's own."""
    facts = canonical_json([_facts(source) for source in corpus.sources])
    return Setup(
        version=import_module("skewtool").__version__,  # an import statement would be a circle
        corpus=hashlib.sha256(facts.encode("utf-8", "backslashreplace")).hexdigest(),
        first=place(corpus, 0, 0),
        last=(len(corpus.sources), 0),
        vocab_size=vocab_size,
        windows=tuple(windows),
        sample_size=sample_size,
        seed=seed,
        allow=tuple(sorted(allow)),
        tokenizer=tokenizer,
        empty=tuple(source.name for source in corpus.sources if source.num_tokens == 0),
        dropped=corpus.dropped,
        notes=tuple(sorted({*corpus.notes, *notes})),
    )


def _facts(source: Source) -> dict[str, object]:
    """Names, sizes, types and the like of a source; not its path, since machines may have the same files elsewhere."""
    known = {field.name: getattr(source, field.name) for field in fields(source)}
    facts: dict[str, object] = {name: value for name, value in known.items() if isinstance(value, str | int)}
    facts["dtype"] = None if source.dtype is None else source.dtype.str
    facts["within"] = [_facts(value) for value in known.values() if isinstance(value, Source)]
    return facts


def _checked_rows(vocab_size: int | None, tokenizer: TokenizerFile) -> int:
    if vocab_size is not None and vocab_size < tokenizer.num_ids:
        raise ProfileError(
            f"--vocab-size {vocab_size} is below the {tokenizer.num_ids} ids of {tokenizer.path}; the model's table "
            "needs a row for each"
        )
    return tokenizer.num_ids if vocab_size is None else vocab_size


def whole_number(name: str, value: object, most: int = 2**63 - 1) -> int:
    """An argument as int. Errors: ProfileError unless it is a whole number in range."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ProfileError(f"{name} must be a whole number, got {value!r}") from None
    if not -most - 1 <= number <= most:
        raise ProfileError(f"{name} must be at most {most}, got {number}")
    return number
