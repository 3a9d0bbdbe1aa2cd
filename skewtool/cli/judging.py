"""`skew` and `report`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

import skewtool
from skewtool.cli.group import note, print_json
from skewtool.cli.options import (
    AGAINST,
    CORPUS,
    JSON,
    PATH,
    against_names,
    corpus_options,
    layout_names,
    open_part,
    tokenizer_file,
)
from skewtool.errors import SkewtoolError

if TYPE_CHECKING:
    from skewtool.skew import Ageing, Quantiles, SkewReport

__all__ = ["report", "skew"]


@click.command()
@click.argument("maps", nargs=-1, type=PATH)
@click.option("--profile", "profile_file", type=PATH, help="Judge on this profile.")
@click.option("--corpus", multiple=True, type=CORPUS, help="Judge on this corpus, its steps in order.")
@corpus_options
@click.option("--vocab-size", type=click.IntRange(min=1), help="With --corpus. Default: that of the maps.")
@click.option("--shards", type=click.IntRange(1, 2**20), help="Default: that of the maps.")
@AGAINST
@click.option("--tokens-per-rank", type=click.IntRange(1, 2**31 - 1), help="Default: the profile's longest window, or 8192.")
@click.option("--shards-per-node", type=click.IntRange(min=1), help="Sources ask slots on their own node first.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of steps drawn from a profile's sample.")
@JSON
def skew(
    maps: tuple[Path, ...], profile_file: Path | None, corpus: tuple[Path, ...], part: tuple[float, float] | None,
    tokenizer: Path | None, allow: tuple[str, ...], vocab_size: int | None, shards: int | None, against: str,
    tokens_per_rank: int | None, shards_per_node: int | None, seed: int, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Loads and imbalance of MAPS and baselines, on average and in every step."""
    from skewtool.profiling import corpus_windows

    if (profile_file is None) == (not corpus):
        raise click.UsageError("give either --profile or --corpus to judge on")
    layouts = layout_names(maps, against_names(against))
    windows = None
    if profile_file is not None:
        judged = skewtool.Profile.load(profile_file)
    else:
        opened = open_part(corpus, part, tokenizer=tokenizer, allow=allow, **options)
        tokens_per_rank = tokens_per_rank or 8192
        vocab_size = vocab_size or max((each.vocab_size for each in layouts.values()), default=None)
        judged = skewtool.profile(
            opened,
            vocab_size=vocab_size,
            tokenizer=tokenizer_file(tokenizer),
            windows=(tokens_per_rank,),
            sample_size=0,
            allow=allow,
        )
        windows = corpus_windows(opened, tokens_per_rank, judged.vocab_size, allow)
    report = skewtool.measure_skew(
        judged, layouts, num_shards=shards, against=against_names(against), tokens_per_rank=tokens_per_rank,
        windows=windows, shards_per_node=shards_per_node, seed=seed,
    )  # fmt: skip
    for each in judged.notes:
        note(each)
    _print_skew(report, as_json)


def _print_skew(report: "SkewReport", as_json: bool) -> None:
    from skewtool.skew import WHERE_SKEW_DOES_NOT_MATTER

    if as_json:
        return print_json(report.to_json())
    slope = "" if report.rank_frequency_slope is None else f"; rank-frequency slope {report.rank_frequency_slope:.2f}"
    click.echo(f"hottest 1 % of ids: {report.top1_percent_share:.1%} of tokens, hottest 10: {report.top10_share:.1%}{slope}")
    steps = f"{report.num_steps:,} steps of {report.num_shards} ranks with {report.tokens_per_rank:,} tokens each"
    click.echo(f"{steps if report.num_steps else 'no windows, so no steps'}; imbalance is busiest shard / mean")
    for each in report.notes:
        note(each)
    if report.step_floor is not None:
        click.echo(
            f"from chance alone, without copies, a perfect map's steps show p50 {report.step_floor[0]:.3f} and p99 "
            f"{report.step_floor[1]:.3f} in unique load\n"
        )
    click.echo(_table(report))
    click.echo()
    if report.over_corpus is not None and report.over_corpus.layouts:
        click.echo(_over_corpus(report.over_corpus))
        click.echo()
    for sentence in WHERE_SKEW_DOES_NOT_MATTER:
        click.echo(sentence)
    return None


def _table(report: "SkewReport") -> str:
    """The figures that fit a terminal; `--json` has all."""
    columns = ["layout", "load", "mean", "bound", "step p50", "p99", "max", "rows/token", "remote", "extra rows"]
    rows = [
        [
            each.layout,
            each.load,
            f"{each.mean_imbalance:.3f}",
            f"{each.lower_bound:.3f}",
            *(_figure(each.step_imbalance, name) for name in ("p50", "p99", "max")),
            _figure(each.busiest_rows_per_token, "p50"),
            _figure(each.busiest_remote_rows_per_token, "p50"),
            f"{each.extra_rows_per_shard:,}",
        ]
        for each in report.layouts
    ]
    return _aligned([columns, *rows])


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _over_corpus(ageing: "Ageing") -> str:
    """The blocks of a time line in a few lines."""
    blocks = ageing.num_tokens.size
    rows = [
        [name, load, *(f"{figure:.3f}" for figure in (each[0], each.max(), each[-1])), str(int(each.argmax()) + 1)]
        for name in ageing.layouts
        for load, each in ((load, layouts[name]) for load, layouts in ageing.imbalance.items())
    ]
    return (
        f"over the corpus, {blocks} block{'s' * (blocks > 1)}, estimated; {ageing.drift[-1]:.1%} of the last block's tokens "
        f"differ from the first's, at most {ageing.drift.max():.1%} of any\n"
        + _aligned([["layout", "load", "first", "worst", "last", "worst block"], *rows])
    )


def _figure(quantiles: "Quantiles | None", name: str) -> str:
    return "-" if quantiles is None else f"{getattr(quantiles, name):.3f}"


def _bench_results(path: Path) -> dict[str, Any]:
    """Errors: SkewtoolError unless the file holds what `bench --json` prints."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = isinstance(content, dict) and all("step_seconds" in each for each in content["layouts"])
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise SkewtoolError(f"{path} is no result of a bench; make one with skewtool bench ... --json > {path}")
    return cast("dict[str, Any]", content)


@click.command()
@click.argument("profile_file", metavar="PROFILE", type=PATH)
@click.argument("maps", nargs=-1, type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Directory for figures, tables and index.html.")
@click.option("--shards", type=click.IntRange(1, 2**20), help="Default: that of the maps.")
@AGAINST
@click.option("--tokens-per-rank", type=click.IntRange(1, 2**31 - 1), help="Default: the profile's longest window.")
@click.option("--tokenizer", type=PATH, help="tokenizer.json, to name the hottest ids.")
@click.option("--bench", "bench_file", type=PATH, help="What `bench --json` printed, for its bar charts.")
@JSON
def report(
    profile_file: Path, maps: tuple[Path, ...], output: Path, shards: int | None, against: str,
    tokens_per_rank: int | None, tokenizer: Path | None, bench_file: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Write figures and a page on PROFILE and MAPS to a directory."""
    import numpy as np

    from skewtool.report import HOTTEST, write_report

    loaded = skewtool.Profile.load(profile_file)
    measured = skewtool.measure_skew(
        loaded,
        layout_names(maps, against_names(against)),
        num_shards=shards,
        against=against_names(against),
        tokens_per_rank=tokens_per_rank,
    )
    names = tokenizer_file(tokenizer)
    hottest = np.argsort(-loaded.counts, kind="stable")[:HOTTEST]
    index = write_report(
        output,
        loaded,
        measured,
        None if names is None else {int(i): names.token_text(int(i)) for i in hottest},
        None if bench_file is None else _bench_results(bench_file),
    )
    if as_json:
        return print_json({"index": str(index), "files": sorted(path.name for path in output.iterdir())})
    click.echo(f"report: {index}")
    return None
