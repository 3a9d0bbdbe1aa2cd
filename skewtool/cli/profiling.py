"""`profile` and `merge`."""

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import skewtool
from skewtool.cli.engines import OnRay, engine_of, engine_options
from skewtool.cli.group import note, print_json
from skewtool.cli.options import CORPUS, JSON, PATH, check_output, corpus_options, numbers, open_part, tokenizer_file
from skewtool.cli.progress import Meter, progress
from skewtool.cli.tasks import Task, task_of, task_options
from skewtool.errors import SkewtoolError

if TYPE_CHECKING:
    from skewtool.corpus import Corpus
    from skewtool.profiling import Checkpoints, Part, Profile

__all__ = ["merge", "part_json", "profile", "profile_json"]


@click.command()
@click.argument("corpus", nargs=-1, required=True, type=CORPUS)
@click.option("-o", "--output", required=True, type=PATH, help="Profile file to write.")
@corpus_options
@click.option("--vocab-size", type=click.IntRange(min=1), help="Rows of the model's table.")
@click.option("--window", "windows", callback=numbers, metavar="N[,N]", default="8192", show_default=True,
              help="Window lengths in tokens; 0 for counts alone.")  # fmt: skip
@click.option("--sample-windows", type=click.IntRange(min=0), default=1024, show_default=True,
              help="Whole windows kept per length, for step-by-step figures.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the choice of sampled windows.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Threads that count.")
@engine_options
@task_options
@click.option("--resume", is_flag=True,
              help="Keep finished ranges beside the output, and go on from those of a killed run.")  # fmt: skip
@click.option("--checkpoint-seconds", type=click.FloatRange(min=0), default=10, show_default=True,
              help="With --resume: how often each thread keeps what it has counted.")  # fmt: skip
@JSON
def profile(
    corpus: tuple[Path, ...], output: Path, part: tuple[float, float] | None, tokenizer: Path | None,
    vocab_size: int | None, windows: tuple[int, ...], sample_windows: int, seed: int, workers: int,
    allow: tuple[str, ...], engine: str, ray_address: str | None, ray_tasks: int | None, task_index: int | str | None,
    task_count: int | str | None, resume: bool, checkpoint_seconds: float, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Count token frequencies and windows of a tokenized CORPUS (files, directories, patterns or URLs).

    A job of many tasks runs the same command in each, with --task-index and --task-count; `skewtool merge` of their parts
    gives the profile of one run. With --resume, a killed command goes on where it was when it is given again. Tasks of a Ray
    cluster count with --engine ray, into the same file.
    """
    task = task_of(task_index, task_count, os.environ)
    on_ray = engine_of(engine, ray_address, ray_tasks, {
        "--task-index": task is not None, "--resume": resume, "--workers": workers > 1
    })  # fmt: skip
    check_output(output, *corpus, tokenizer)
    opened = open_part(corpus, part, tokenizer=tokenizer, allow=allow, **options)
    check_output(output, *(source.path for source in opened.sources))
    if task is not None:
        _check_outside(output, corpus)
    counting: dict[str, Any] = {
        "vocab_size": vocab_size, "tokenizer": tokenizer_file(tokenizer), "windows": () if windows == (0,) else windows,
        "sample_size": sample_windows, "seed": seed, "allow": allow,
    }  # fmt: skip
    if on_ray is not None:
        return _profile_on_ray(opened, output, counting, on_ray, as_json)
    counting |= {"workers": workers, "checkpoints": _checkpoints(output, task, resume, checkpoint_seconds)}
    if task is None:
        return _profile_all(opened, output, counting, as_json)
    return _profile_task(opened, output, counting, task, as_json)


def _check_outside(output: Path, corpus: tuple[Path, ...]) -> None:
    for each in corpus:
        if isinstance(each, Path) and each.is_dir() and output.resolve().is_relative_to(each.resolve()):
            raise SkewtoolError(
                f"the parts beside {output} would lie in the corpus {each}, and tasks that start later would take them for "
                "files of it; write them to another directory"
            )


def _checkpoints(output: Path, task: Task | None, resume: bool, seconds: float) -> "Checkpoints | None":
    """Those of this output and task; without --resume none, and a note where there are some."""
    from skewtool.profiling import Checkpoints

    of_task = "" if task is None else f".task-{task.index}-of-{task.count}"
    # Hidden, and so no file of a corpus that is searched again after a kill.
    directory = output.with_name(f".{output.name}{of_task}.checkpoints")
    if resume:
        return Checkpoints(directory, seconds)
    if directory.exists():
        note(f"{directory} has checkpoints of an earlier run, which are not used: pass --resume to go on from them")
    return None


def _profile_all(corpus: "Corpus", output: Path, counting: dict[str, Any], as_json: bool) -> None:
    with progress("profiling", corpus.num_bytes) as meter:
        made = skewtool.profile(corpus, progress=meter, **counting)
        rate = _rate(made.num_tokens, counting["checkpoints"], meter)
    _save(made, output)
    if counting["checkpoints"] is not None:
        counting["checkpoints"].remove()
    print_profile(made, as_json, {"tokens_per_second": rate})


def _profile_on_ray(corpus: "Corpus", output: Path, counting: dict[str, Any], on_ray: OnRay, as_json: bool) -> None:
    from skewtool.profiling import profile_on_ray

    # Ray prints what happens to its tasks, on stdout, which is for the result.
    with progress("profiling on Ray", corpus.num_bytes) as meter, redirect_stdout(sys.stderr):
        made = profile_on_ray(corpus, address=on_ray.address, tasks=on_ray.tasks, progress=meter, **counting)
        rate = _rate(made.num_tokens, None, meter)
    _save(made, output)
    print_profile(made, as_json, {"tokens_per_second": rate})


def _save(made: "Profile", output: Path) -> None:
    if not made.num_tokens:
        raise SkewtoolError(f"nothing is left to count: all {sum(made.dropped.values())} ids are outside the vocabulary")
    made.save(output)


def _profile_task(corpus: "Corpus", output: Path, counting: dict[str, Any], task: Task, as_json: bool) -> None:
    from skewtool.profiling import profile_part

    with progress(f"task {task.index} of {task.count}", corpus.num_bytes // task.count) as meter:
        made = profile_part(corpus, task_index=task.index, task_count=task.count, progress=meter, **counting)
        rate = _rate(made.tally.num_tokens, counting["checkpoints"], meter)
    path = output.with_name(f"{output.stem}.part-{made.in_words}{output.suffix}")
    made.save(path)
    if counting["checkpoints"] is not None:
        counting["checkpoints"].remove()
    if as_json:
        return print_json({"part": str(path), "task": [task.index, task.count], "tokens_per_second": rate} | part_json(made))
    click.echo(
        f"task {task.index} of {task.count}: {made.tally.num_tokens:,} tokens from {len(made.tally.sources):,} files in "
        f"{path}; {rate / 1e6:,.1f} M tokens/s"
    )
    return None


def _rate(num_tokens: int, checkpoints: "Checkpoints | None", meter: Meter) -> int:
    """Tokens per second of this run; those that an earlier one has counted are told in a note."""
    before = 0 if checkpoints is None else checkpoints.num_tokens
    if before:
        note(f"{before:,} tokens had been counted before the interruption")
    return round(max(0, num_tokens - before) / max(meter.seconds(), 1e-9))


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
        "blocks": 0 if made.timeline is None else len(made.timeline),
        "tokenizer": None if made.tokenizer is None else vars(made.tokenizer),
        "notes": list(made.notes),
    }


def part_json(made: "Part") -> dict[str, Any]:
    """What a part is of, and what it holds."""
    return {
        "ranges": [[list(first), list(last)] for first, last in made.ranges],
        "num_tokens": made.tally.num_tokens,
        "vocab_size": made.setup.vocab_size,
        "files": [{"name": source.name, "num_tokens": source.num_tokens} for source in made.tally.sources],
    }


@click.command()
@click.argument("profiles", nargs=-1, required=True, type=PATH)
@click.option("-o", "--output", required=True, type=PATH, help="Profile file to write.")
@JSON
def merge(profiles: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Add PROFILES of one tokenizer, or put the parts of one profile together: exact, in any order.

    Profiles add up, so one that is given twice counts twice. Parts must be those of all tasks; one given twice counts once.
    """
    from skewtool.profiling import Part, merge_parts
    from skewtool.storage import peek_header

    check_output(output, *profiles)
    if any((peek_header(path) or {}).get("format") == "profile-part" for path in profiles):
        made = merge_parts([Part.load(path) for path in profiles])
    else:
        made = skewtool.merge([skewtool.Profile.load(path) for path in profiles])
    made.save(output)
    print_profile(made, as_json, {})
