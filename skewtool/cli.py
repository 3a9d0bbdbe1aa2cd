"""The command line: parse, load, one library call, write, print.

Results go to stdout, progress and notes to stderr; `--json` prints one object for machines. Exit codes: 0 done, 1 the
input is bad or a check failed, 2 the command was called wrongly.
"""

import json
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import skewtool
from skewtool.errors import SkewtoolError

if TYPE_CHECKING:
    from skewtool.corpus import Corpus, TokenizerFile
    from skewtool.profiling import Profile
    from skewtool.sharding import Partition, ShardMap
    from skewtool.skew import SkewReport

__all__ = ["main"]

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


class _Group(click.Group):
    """Turns the errors an input can cause into one line and exit code 1, and warnings into notes."""

    def invoke(self, ctx: click.Context) -> Any:
        warnings.showwarning = lambda message, *_, **__: _note(str(message))
        try:
            return super().invoke(ctx)
        except SkewtoolError as error:
            click.echo(f"skewtool: error: {error}", err=True)
        except MemoryError as error:
            click.echo(f"skewtool: error: not enough memory: {error}", err=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            click.echo(f"skewtool: error: {error.filename or ''}: {error.strerror or error}", err=True)
        return ctx.exit(1)


def _note(text: str) -> None:
    click.echo(f"note: {text}", err=True)


def _json(value: object) -> None:
    click.echo(json.dumps(value, allow_nan=False))


def _numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Whole numbers separated by commas."""
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers such as 8192 or 4096,8192") from None


def _part(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, float] | None:
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


def _corpus_options(function: F) -> F:
    from skewtool.corpus.opening import FORMATS

    for option in (
        click.option("--part", callback=_part, metavar="START:STOP", help="Only this part of the tokens, as 0:80%."),
        click.option("--column", default="text", show_default=True, help="Field with the text in JSON lines."),
        click.option("--tokenizer", type=PATH, help="tokenizer.json, to turn text into ids and to know the vocabulary."),
        click.option("--dtype", help="Type of header-less ids: uint16, uint32, int32, …"),
        click.option("--format", type=click.Choice(FORMATS), help="Instead of telling it by content."),
    ):
        function = option(function)
    return function


def _open(paths: tuple[Path, ...], part: tuple[float, float] | None, **options: Any) -> "Corpus":
    corpus = skewtool.open_corpus(paths, **options)
    return corpus if part is None else corpus.part(*part)


def _tokenizer(path: Path | None) -> "TokenizerFile | None":
    from skewtool.corpus import TokenizerFile

    return None if path is None else TokenizerFile(path)


class _Meter:
    """Moves a progress bar from any thread and remembers when the first bytes came, which is after all start-up."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._lock = threading.Lock()
        self._started = time.perf_counter()
        self._moving = False

    def __call__(self, count: int) -> None:
        with self._lock:
            if not self._moving:
                self._started, self._moving = time.perf_counter(), True
            self._bar.update(count)

    def seconds(self) -> float:
        """Since the first bytes."""
        return time.perf_counter() - self._started


@contextmanager
def _progress(label: str, num_bytes: int) -> Iterator[_Meter]:
    """A bar with remaining time on stderr; nothing when that is no terminal."""
    with click.progressbar(
        length=num_bytes, label=label, file=sys.stderr, show_pos=False, hidden=not sys.stderr.isatty(), update_min_steps=1
    ) as bar:
        yield _Meter(bar)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(skewtool.__version__, prog_name="skewtool")
def main() -> None:
    """Measure and remove the load skew of vocabulary-sharded embeddings and LM heads.

    Read a corpus and profile it, compute a shard map, judge it, use it.
    """


@main.command()
@click.argument("corpus", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Profile file to write.")
@_corpus_options
@click.option("--vocab-size", type=click.IntRange(min=1), help="Rows of the model's table.")
@click.option("--window", "windows", callback=_numbers, metavar="N[,N]", default="8192", show_default=True,
              help="Window lengths in tokens; 0 for counts alone.")  # fmt: skip
@click.option("--sample-windows", type=click.IntRange(min=0), default=1024, show_default=True,
              help="Whole windows kept per length, for step-by-step figures.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the choice of sampled windows.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Threads that count.")
@click.option("--allow", multiple=True, metavar="CHECK", help="Go on after a failed check: bad-ids, narrow-dtype.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def profile(
    corpus: tuple[Path, ...], output: Path, part: tuple[float, float] | None, tokenizer: Path | None,
    vocab_size: int | None, windows: tuple[int, ...], sample_windows: int, seed: int, workers: int,
    allow: tuple[str, ...], as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Count token frequencies and windows of a tokenized CORPUS (files or directories)."""
    from skewtool.storage import check_target

    check_target(output)
    opened = _open(corpus, part, tokenizer=tokenizer, **options)
    with _progress("profiling", opened.num_bytes) as meter:
        made = skewtool.profile(
            opened, vocab_size=vocab_size, tokenizer=_tokenizer(tokenizer), windows=() if windows == (0,) else windows,
            sample_size=sample_windows, seed=seed, workers=workers, allow=allow, progress=meter,
        )  # fmt: skip
        rate = made.num_tokens / max(meter.seconds(), 1e-9)
    made.save(output)
    _print_profile(made, as_json, {"tokens_per_second": round(rate)})


def _print_profile(made: "Profile", as_json: bool, more: dict[str, Any]) -> None:
    for note in made.notes:
        _note(note)
    if as_json:
        return _json(_profile_json(made) | more)
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


def _profile_json(made: "Profile") -> dict[str, Any]:
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


@main.command()
@click.argument("profiles", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Profile file to write.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def merge(profiles: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Add PROFILES of one tokenizer: exact, in any order."""
    made = skewtool.merge([skewtool.Profile.load(path) for path in profiles])
    made.save(output)
    _print_profile(made, as_json, {})


@main.command()
@click.argument("path", type=PATH)
@_corpus_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect(path: Path, part: tuple[float, float] | None, as_json: bool, **options: Any) -> None:
    """Tell what PATH is: a profile, a shard map, or a corpus and its format."""
    from skewtool.storage import peek_header

    header = peek_header(path) if path.is_file() else None
    if header is None:
        found: dict[str, Any] = _corpus_json(_open((path,), part, **options))
    elif header["format"] == "profile":
        found = {"kind": "profile"} | _profile_json(skewtool.Profile.load(path))
    else:
        found = {"kind": header["format"]} | _map_json(skewtool.ShardMap.load(path))
    if as_json:
        return _json(found)
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


def _map_json(shard_map: "ShardMap") -> dict[str, Any]:
    return {
        "shards": shard_map.num_shards,
        "vocab_size": shard_map.vocab_size,
        "real_vocab": shard_map.real_vocab,
        "home_slots": shard_map.home_slots,
        "rows_per_shard": _range(shard_map.home_rows),
        "extra_rows_per_shard": shard_map.num_slots - shard_map.home_slots,
        "padding_slots": shard_map.num_shards * shard_map.home_slots - shard_map.vocab_size,
        "fingerprint": shard_map.fingerprint,
    }


def _range(rows: Any) -> list[int]:
    return [int(rows.min()), int(rows.max())]


@main.command()
@click.argument("profile", type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Map file to write.")
@click.option("--shards", required=True, type=click.IntRange(min=1), help="Number of shards.")
@click.option("--strategy", default="balanced", show_default=True, help="contiguous, strided, snake, random, balanced.")
@click.option("--load", type=click.Choice(["unique", "raw"]), default="unique", show_default=True,
              help="Distinct ids per rank and step, or every occurrence.")  # fmt: skip
@click.option("--tokens-per-rank", type=click.IntRange(min=1), help="Default: the profile's longest window.")
@click.option("--extra-rows", default="0", show_default=True, help="Room for copies per shard: rows, or 10%.")
@click.option("--real-vocab", type=click.IntRange(min=1), help="Ids from here on are padding. Default: the tokenizer's.")
@click.option("--pad-to", type=click.IntRange(min=1), default=1, show_default=True, help="Home slots in multiples of this.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random strategy.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def partition(
    profile: Path, output: Path, shards: int, strategy: str, load: Any, tokens_per_rank: int | None, extra_rows: str,
    real_vocab: int | None, pad_to: int, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Compute a shard map from a PROFILE: equal rows per shard, even load, copies of hot rows where there is room."""
    from skewtool.sharding import make_partition

    loaded = skewtool.Profile.load(profile)
    settings: dict[str, Any] = {
        "strategy": strategy, "load": load, "tokens_per_rank": tokens_per_rank, "real_vocab": real_vocab,
        "pad_to": pad_to, "seed": seed,
    }  # fmt: skip
    skewtool.partition(loaded, 1, **settings)  # compiles what the timed call runs
    start = time.perf_counter()
    made = make_partition(loaded, shards, extra_rows=extra_rows, **settings)
    seconds = time.perf_counter() - start
    made.shard_map.save(output)
    found = _partition_json(made, strategy, load) | {"seconds": round(seconds, 6)}
    if as_json:
        return _json(found)
    fewest, most = found["rows_per_shard"]
    extra = f" and {found['extra_rows_per_shard']:,} for copies" if found["extra_rows_per_shard"] else ""
    click.echo(
        f"{strategy}: {made.shard_map.vocab_size:,} ids on {shards} shards, {fewest:,}"
        f"{f' to {most:,}' if most > fewest else ''} rows each{extra}, in {seconds:.3f} s"
    )
    click.echo(
        f"{load} load: busiest / mean {found['imbalance']:.6f}, no map of equal rows below {found['lower_bound']:.6f}, "
        f"gap {found['gap']:.1e}"
    )
    if made.chosen is not None:
        _explain_copies(made)
    click.echo(f"fingerprint {made.shard_map.fingerprint}")
    return None


def _partition_json(made: "Partition", strategy: str, load: str) -> dict[str, Any]:
    from skewtool.sharding import assess

    balance = assess(made.loads, made.shard_map)
    chosen = made.chosen
    return {
        "strategy": strategy,
        "shards": made.shard_map.num_shards,
        "load": load,
        "imbalance": balance.imbalance if chosen is None else chosen.imbalance,
        "lower_bound": balance.lower_bound if chosen is None else 1.0,
        "gap": balance.gap if chosen is None else chosen.imbalance - 1.0,
        "rows_per_shard": _range(made.shard_map.home_rows),
        "extra_rows_per_shard": made.shard_map.num_slots - made.shard_map.home_slots,
        "copies": None if chosen is None else vars(chosen) | {"tried": [vars(each) for each in made.candidates]},
        "fingerprint": made.shard_map.fingerprint,
    }


def _explain_copies(made: "Partition") -> None:
    """Which copies were chosen and why, beside what else was tried."""
    assert made.chosen is not None
    click.echo("copies, judged on sampled windows that the map had not learnt from:")
    for each in made.candidates:
        click.echo(
            f"{'>' if each is made.chosen else ' '} {each.every:,} ids on every shard, {each.several:,} on two or more: "
            f"steps p50 {each.step_p50:.4f}, p99 {each.step_p99:.4f}; busiest shard serves {each.requests_per_token:.4f} "
            "rows per token"
        )


@main.command()
@click.argument("map_file", metavar="MAP", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(map_file: Path, as_json: bool) -> None:
    """Check a MAP file: version, digest, and that every id has exactly one home."""
    shard_map = skewtool.ShardMap.load(map_file)
    if as_json:
        return _json({"ok": True} | _map_json(shard_map))
    click.echo(f"{map_file}: good. {shard_map!r}")
    return None


def _layout_names(maps: tuple[Path, ...], against: list[str]) -> dict[str, "ShardMap"]:
    """Maps by the stem of their file, by the whole path where that is the name of another layout."""
    stems = [path.stem for path in maps]
    return {
        path.stem if [*stems, *against].count(path.stem) == 1 else str(path): skewtool.ShardMap.load(path)
        for path in maps
    }  # fmt: skip


def _against(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


AGAINST = click.option("--against", default="contiguous,strided,hidden", show_default=True,
                       help="Layouts to compare with: strategies and hidden.")  # fmt: skip


@main.command()
@click.argument("maps", nargs=-1, type=PATH)
@click.option("--profile", "profile_file", type=PATH, help="Judge on this profile.")
@click.option("--corpus", multiple=True, type=PATH, help="Judge on this corpus, its steps in order.")
@_corpus_options
@click.option("--vocab-size", type=click.IntRange(min=1), help="With --corpus. Default: that of the maps.")
@click.option("--shards", type=click.IntRange(min=1), help="Default: that of the maps.")
@AGAINST
@click.option("--tokens-per-rank", type=click.IntRange(min=1), help="Default: the profile's longest window, or 8192.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of steps drawn from a profile's sample.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def skew(
    maps: tuple[Path, ...], profile_file: Path | None, corpus: tuple[Path, ...], part: tuple[float, float] | None,
    tokenizer: Path | None, vocab_size: int | None, shards: int | None, against: str, tokens_per_rank: int | None,
    seed: int, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Loads and imbalance of MAPS and baselines, on average and in every step."""
    from skewtool.profiling import corpus_windows

    if (profile_file is None) == (not corpus):
        raise click.UsageError("give either --profile or --corpus to judge on")
    layouts = _layout_names(maps, _against(against))
    windows = None
    if profile_file is not None:
        judged = skewtool.Profile.load(profile_file)
    else:
        opened = _open(corpus, part, tokenizer=tokenizer, **options)
        tokens_per_rank = tokens_per_rank or 8192
        vocab_size = vocab_size or max((each.vocab_size for each in layouts.values()), default=None)
        judged = skewtool.profile(
            opened, vocab_size=vocab_size, tokenizer=_tokenizer(tokenizer), windows=(tokens_per_rank,), sample_size=0
        )
        windows = corpus_windows(opened, tokens_per_rank, judged.vocab_size)
    report = skewtool.measure_skew(
        judged, layouts, num_shards=shards, against=_against(against), tokens_per_rank=tokens_per_rank,
        windows=windows, seed=seed,
    )  # fmt: skip
    for note in judged.notes:
        _note(note)
    _print_skew(report, as_json)


def _print_skew(report: "SkewReport", as_json: bool) -> None:
    from skewtool.skew import WHERE_SKEW_DOES_NOT_MATTER

    if as_json:
        return _json(report.to_json())
    slope = "" if report.rank_frequency_slope is None else f"; rank-frequency slope {report.rank_frequency_slope:.2f}"
    click.echo(f"hottest 1 % of ids: {report.top1_percent_share:.1%} of tokens, hottest 10: {report.top10_share:.1%}{slope}")
    steps = f"{report.num_steps:,} steps of {report.num_shards} ranks with {report.tokens_per_rank:,} tokens each"
    click.echo(f"{steps if report.num_steps else 'no windows, so no steps'}; imbalance is busiest shard / mean\n")
    table = report.table().dropna(axis="columns", how="all")
    table.columns = [name.replace("_", " ").replace("busiest rows per token", "rows/token") for name in table.columns]
    click.echo(table.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="-"))
    click.echo()
    for sentence in WHERE_SKEW_DOES_NOT_MATTER:
        click.echo(sentence)
    return None


@main.command()
@click.argument("profile_file", metavar="PROFILE", type=PATH)
@click.argument("maps", nargs=-1, type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Directory for figures, tables and index.html.")
@click.option("--shards", type=click.IntRange(min=1), help="Default: that of the maps.")
@AGAINST
@click.option("--tokens-per-rank", type=click.IntRange(min=1), help="Default: the profile's longest window.")
@click.option("--tokenizer", type=PATH, help="tokenizer.json, to name the hottest ids.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report(
    profile_file: Path, maps: tuple[Path, ...], output: Path, shards: int | None, against: str,
    tokens_per_rank: int | None, tokenizer: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Write figures and a page on PROFILE and MAPS to a directory."""
    import numpy as np

    from skewtool.report import HOTTEST, write_report

    loaded = skewtool.Profile.load(profile_file)
    measured = skewtool.measure_skew(
        loaded,
        _layout_names(maps, _against(against)),
        num_shards=shards,
        against=_against(against),
        tokens_per_rank=tokens_per_rank,
    )
    names = _tokenizer(tokenizer)
    hottest = np.argsort(-loaded.counts, kind="stable")[:HOTTEST]
    index = write_report(
        output, loaded, measured, None if names is None else {int(i): names.token_text(int(i)) for i in hottest}
    )
    if as_json:
        return _json({"index": str(index), "files": sorted(path.name for path in output.iterdir())})
    click.echo(f"report: {index}")
    return None
