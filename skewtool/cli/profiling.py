"""`profile` and `merge`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import skewtool
from skewtool.cli.group import note, print_json
from skewtool.cli.options import JSON, PATH, check_output, corpus_options, numbers, open_part, tokenizer_file
from skewtool.cli.progress import progress
from skewtool.errors import SkewtoolError

if TYPE_CHECKING:
    from skewtool.profiling import Profile

__all__ = ["merge", "profile", "profile_json"]


@click.command()
@click.argument("corpus", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Profile file to write.")
@corpus_options
@click.option("--vocab-size", type=click.IntRange(min=1), help="Rows of the model's table.")
@click.option("--window", "windows", callback=numbers, metavar="N[,N]", default="8192", show_default=True,
              help="Window lengths in tokens; 0 for counts alone.")  # fmt: skip
@click.option("--sample-windows", type=click.IntRange(min=0), default=1024, show_default=True,
              help="Whole windows kept per length, for step-by-step figures.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the choice of sampled windows.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Threads that count.")
@JSON
def profile(
    corpus: tuple[Path, ...], output: Path, part: tuple[float, float] | None, tokenizer: Path | None,
    vocab_size: int | None, windows: tuple[int, ...], sample_windows: int, seed: int, workers: int,
    allow: tuple[str, ...], as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Count token frequencies and windows of a tokenized CORPUS (files or directories)."""
    check_output(output, *corpus, tokenizer)
    opened = open_part(corpus, part, tokenizer=tokenizer, allow=allow, **options)
    check_output(output, *(Path(file) for file in opened.files))
    with progress("profiling", opened.num_bytes) as meter:
        made = skewtool.profile(
            opened, vocab_size=vocab_size, tokenizer=tokenizer_file(tokenizer), windows=() if windows == (0,) else windows,
            sample_size=sample_windows, seed=seed, workers=workers, allow=allow, progress=meter,
        )  # fmt: skip
        rate = made.num_tokens / max(meter.seconds(), 1e-9)
    if not made.num_tokens:
        raise SkewtoolError(f"nothing is left to count: all {sum(made.dropped.values())} ids are outside the vocabulary")
    made.save(output)
    print_profile(made, as_json, {"tokens_per_second": round(rate)})


def print_profile(made: "Profile", as_json: bool, more: dict[str, Any]) -> None:
    """Notes, then the profile in words or as JSON with `more` keys."""
    for each in made.notes:
        note(each)
    if as_json:
        return print_json(profile_json(made) | more)
    click.echo(
        f"{made.num_tokens:,} tokens from {len(made.sources):,} files; {made.num_distinct:,} of {made.vocab_size:,} ids "
        f"occur; counts sha256 {made.counts_sha256}"
    )
    for window in made.windows:
        click.echo(f"{window.num_windows:,} windows of {window.length:,} tokens, {len(window.sample):,} kept whole")
    if made.tokenizer is not None:
        sizes = made.tokenizer
        click.echo(
            f"vocabulary: {sizes.base_size:,} tokens of the model, {sizes.size_with_added:,} with added ones (ids below "
            f"{sizes.num_ids:,}), {made.vocab_size:,} rows of the table"
        )
    if "tokens_per_second" in more:
        click.echo(f"{more['tokens_per_second'] / 1e6:,.1f} M tokens/s")
    return None


def profile_json(made: "Profile") -> dict[str, Any]:
    """The documented keys of a profile."""
    return {
        "num_tokens": made.num_tokens,
        "num_distinct": made.num_distinct,
        "vocab_size": made.vocab_size,
        "counts_sha256": made.counts_sha256,
        "dropped": dict(made.dropped),
        "files": [vars(source) for source in made.sources],
        "windows": [{"length": w.length, "num_windows": w.num_windows, "sampled": len(w.sample)} for w in made.windows],
        "tokenizer": None if made.tokenizer is None else vars(made.tokenizer),
        "notes": list(made.notes),
    }


@click.command()
@click.argument("profiles", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Profile file to write.")
@JSON
def merge(profiles: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Add PROFILES of one tokenizer: exact, in any order."""
    check_output(output, *profiles)
    made = skewtool.merge([skewtool.Profile.load(path) for path in profiles])
    made.save(output)
    print_profile(made, as_json, {})
