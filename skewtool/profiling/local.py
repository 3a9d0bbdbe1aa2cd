"""`profile`: counts a corpus on this machine, with threads that release the interpreter lock.

The corpus is cut into spans at window boundaries; each worker counts spans into tables of its own, and the tables are
added up at the end. All sums are integers and the sample is chosen by key, so the result does not depend on the number
of workers or on who took which span. `profile_part` does the same for one task of several, and gives a part to merge.
"""

import math
import queue
import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from skewtool.corpus import Corpus, Ids, Source, TokenizerFile
from skewtool.corpus.source import Progress
from skewtool.errors import CorpusError, ProfileError
from skewtool.profiling.blocks import BlockCounter, Blocks
from skewtool.profiling.checkpoints import Checkpoints, Evidence, Timer
from skewtool.profiling.checks import as_table_index, check_no_end_mark
from skewtool.profiling.part import Part, merge_parts
from skewtool.profiling.places import Range, Span, gaps, joined, num_bytes, place, spans, task_range
from skewtool.profiling.plain_counter import PlainCounter
from skewtool.profiling.profile import Profile, WindowSample, WindowStatistics
from skewtool.profiling.setup import DEFAULT_WINDOWS, MOST_IDS, Setup, checked_setup, whole_number
from skewtool.profiling.tally import SourceTally, Tally, add_tallies
from skewtool.profiling.window_counter import WindowCounter
from skewtool.profiling.window_keys import largest_sampled_key, source_key

__all__ = ["num_spans", "profile", "profile_of", "profile_part"]

_SPAN_TOKENS = 1 << 22  # small enough that the workers end together


@dataclass(frozen=True)
class _Job:
    """What all workers share."""

    corpus: Corpus
    setup: Setup
    blocks: Blocks
    largest_keys: tuple[np.uint64, ...]
    progress: Progress | None
    checkpoints: Checkpoints | None
    interrupted: threading.Event = field(default_factory=threading.Event)


class _Worker:
    """The tables of one thread."""

    def __init__(self, job: _Job) -> None:
        self.job = job
        vocab_size, size = job.setup.vocab_size, job.setup.sample_size
        # One row more than the vocabulary: where allowed, bad ids are counted there and dropped at the end.
        table_size = 1 if vocab_size is None else vocab_size + 1
        self.windows = [
            WindowCounter(length, table_size, size, largest)
            for length, largest in zip(job.setup.windows, job.largest_keys, strict=True)
        ]
        self.counters: list[WindowCounter | PlainCounter] = [*self.windows] or [PlainCounter(table_size)]
        self.blocks = BlockCounter(vocab_size)
        self.sources: dict[int, SourceTally] = {}
        self.ranges: list[Range] = []
        self.evidence = Evidence()
        self.timer = Timer(math.inf if job.checkpoints is None else job.checkpoints.every_seconds)

    def count(self, span: Span) -> None:
        source = self.job.corpus.sources[span.source]
        self.evidence.see_file(span.source, source)
        key = source_key(source.name, self.job.setup.seed)
        for counter in self.counters:
            counter.begin(key, span.start)
        position = span.start
        for ids in source.blocks(span.start, span.stop, progress=self.job.progress):
            if self.job.interrupted.is_set():
                return
            if position == span.start:
                self.evidence.see_ids(span.source, source, span.start, ids)
            index = self._checked(ids, source, position)
            for block, part in self.job.blocks.parts(span.source, position, index):
                if block != self.blocks.block:
                    self.blocks.turn_to(block, self.counters[0].counts)
                for counter in self.counters:
                    counter.add(part)
            position += ids.size
        digests = [counter.end() for counter in self.counters]
        before = self.sources.get(span.source, SourceTally(span.source, source.name, 0, 0))
        self.sources[span.source] = SourceTally(
            span.source, source.name, before.num_tokens + position - span.start, (before.digest + digests[0]) % 2**64
        )
        self.ranges.append(span.within)

    def keep(self) -> None:
        """Between two spans: writes a checkpoint when it is time for one."""
        if self.job.checkpoints is not None and not self.job.interrupted.is_set() and self.timer.due():
            self.job.checkpoints.save(self.part(), self.evidence)

    def part(self) -> Part:
        """What this worker has counted so far."""
        counts = self.counters[0].counts
        rows = counts.size if self.job.setup.vocab_size is not None else int(np.flatnonzero(counts).max(initial=-1)) + 1
        windows = tuple(
            WindowStatistics(each.length, each.num_windows, each.presence[:rows], WindowSample.of(each.kept()))
            for each in self.windows
        )
        self.ranges = list(joined(self.ranges))
        blocks = self.blocks.tallies(counts, rows)
        tally = Tally(counts[:rows], windows, tuple(sorted(self.sources.values())), blocks)
        return Part(self.job.setup, tuple(self.ranges), tally)

    def _checked(self, ids: Ids, source: Source, position: int) -> Ids:
        vocab_size = self.job.setup.vocab_size
        if vocab_size is not None:
            return as_table_index(ids, vocab_size, source, position, self.job.setup.allow)
        check_no_end_mark(ids, source, position)
        index = as_table_index(ids, MOST_IDS, source, position, ())
        needed = int(index.max(initial=0)) + 1
        if needed > self.counters[0].table_size:
            for counter in self.counters:
                counter.grow(max(needed, min(2 * counter.table_size, MOST_IDS)))
        return index


def profile(
    corpus: Corpus,
    *,
    vocab_size: int | None = None,
    tokenizer: TokenizerFile | None = None,
    windows: Sequence[int] = DEFAULT_WINDOWS,
    sample_size: int = 1024,
    seed: int = 0,
    workers: int = 1,
    allow: Collection[str] = (),
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> Profile:
    """Counts a corpus in one pass.

    `vocab_size`: rows of the model's table; ids at or above it are an error. By default the number of ids of the
    `tokenizer`, else the highest id met plus one. `windows`: window lengths in tokens; none for counts alone.
    `sample_size`: whole windows kept for each length. `allow`: checks to go on after (see `skewtool.profiling.checks`).
    `progress` is called with the number of bytes read since its last call, from any worker's thread. `checkpoints`: where
    finished ranges are kept and, after an interruption, found again; the caller removes them when the result is safe.

    Errors: CorpusError when the corpus cannot be read or holds ids that the vocabulary does not; ProfileError for
    parameters out of range, and for checkpoints of another corpus, settings or version.
    """
    part = profile_part(
        corpus, vocab_size=vocab_size, tokenizer=tokenizer, windows=windows, sample_size=sample_size, seed=seed,
        workers=workers, allow=allow, progress=progress, checkpoints=checkpoints,
    )  # fmt: skip
    return profile_of(corpus, part)


def profile_of(corpus: Corpus, part: Part) -> Profile:
    """The profile that a part of a whole corpus is. Errors: CorpusError when it holds no tokens."""
    if not part.tally.num_tokens:
        raise CorpusError(f"the corpus holds no tokens ({corpus.sources[0].path} and what is with it)")
    return merge_parts([part])


def profile_part(
    corpus: Corpus,
    *,
    task_index: int = 0,
    task_count: int = 1,
    vocab_size: int | None = None,
    tokenizer: TokenizerFile | None = None,
    windows: Sequence[int] = DEFAULT_WINDOWS,
    sample_size: int = 1024,
    seed: int = 0,
    workers: int = 1,
    allow: Collection[str] = (),
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> Part:
    """Counts the share of task `task_index` of `task_count` (`skewtool.profiling.places.task_range`); the rest, and the
    errors, as `profile`. Merging the parts of all tasks gives the profile of a plain run; a part may be empty."""
    setup = checked_setup(
        corpus, vocab_size=vocab_size, tokenizer=tokenizer, windows=windows, sample_size=sample_size, seed=seed, allow=allow
    )
    workers = whole_number("workers", workers)
    if workers < 1:
        raise ProfileError(f"workers must be at least 1, got {workers}")
    index, count = whole_number("task_index", task_index), whole_number("task_count", task_count)
    largest_keys = tuple(largest_sampled_key(corpus, each, setup.sample_size, setup.seed) for each in setup.windows)
    job = _Job(corpus, setup, Blocks.of(corpus, setup.windows), largest_keys, progress, checkpoints)
    return _count(job, task_range(corpus, setup.windows, index, count), workers)


def num_spans(corpus: Corpus, windows: Sequence[int]) -> int:
    """In how many pieces a corpus is counted: more workers or tasks than that have nothing to do."""
    return sum(1 for _ in spans(corpus, windows, [(place(corpus, 0, 0), (len(corpus.sources), 0))], _SPAN_TOKENS))


def _count(job: _Job, share: Range, workers: int) -> Part:
    """Finds what is finished, counts what is not, adds up."""
    found = [] if job.checkpoints is None else job.checkpoints.load(job.setup, job.corpus, share)
    finished = joined(each for part in found for each in part.ranges)
    _compile(job.corpus)
    if job.progress is not None and finished:
        job.progress(num_bytes(job.corpus, finished))
    todo = spans(job.corpus, job.setup.windows, gaps(share, finished), _SPAN_TOKENS)
    parts = [*found, *(worker.part() for worker in _run(job, todo, workers))]
    return Part(job.setup, (share,), add_tallies([part.tally for part in parts], job.setup.sample_size))


def _compile(corpus: Corpus) -> None:
    """Compiles, or loads from disk, the loops for the types of this corpus, before the clock and the threads start."""
    for dtype in {source.dtype or np.dtype(np.uint32) for source in corpus.sources}:
        index = as_table_index(np.zeros(1, dtype.newbyteorder("=")), 1, corpus.sources[0], 0, ())
        for scratch in (WindowCounter(1, 1, 1), PlainCounter(1)):
            scratch.begin(0, 0)
            scratch.add(index)
            scratch.end()
            scratch.counts.sum()  # empties the totals, which is compiled, too


def _run(job: _Job, todo: Iterable[Span], workers: int) -> list[_Worker]:
    """Counts all spans; the error of the earliest bad span wins, whichever thread met it."""
    waiting: queue.SimpleQueue[tuple[int, Span]] = queue.SimpleQueue()
    for item in enumerate(todo):
        waiting.put(item)
    failures: list[tuple[int, Exception]] = []
    failed = threading.Event()  # no further spans; those begun go on, since an earlier one may fail, too

    def work() -> _Worker:
        worker = _Worker(job)
        while not failed.is_set():
            try:
                number, span = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                worker.count(span)
                worker.keep()
            except Exception as error:
                failures.append((number, error))
                failed.set()
        return worker

    with ThreadPoolExecutor(workers) as pool:
        try:
            done = [future.result() for future in [pool.submit(work) for _ in range(workers)]]
        except BaseException:  # also a keyboard interrupt: the threads end after their current block
            failed.set()
            job.interrupted.set()
            raise
    if failures:
        raise min(failures, key=lambda failure: failure[0])[1]
    return done
