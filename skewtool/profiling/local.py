"""`profile`: counts a corpus on this machine, with threads that release the interpreter lock.

The corpus is cut into spans at window boundaries; each worker counts spans into tables of its own, and the tables are
added up at the end. All sums are integers and the sample is chosen by key, so the result does not depend on the number
of workers or on who took which span.
"""

import hashlib
import math
import operator
import queue
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from skewtool.corpus import Corpus, Ids, Source, TokenizerFile
from skewtool.corpus.checks import BAD_IDS
from skewtool.corpus.source import Progress
from skewtool.errors import CorpusError, ProfileError
from skewtool.profiling.checks import ALLOWABLE, as_table_index, check_dtype_holds_vocabulary, check_no_end_mark
from skewtool.profiling.plain_counter import PlainCounter
from skewtool.profiling.profile import Profile, SourceRow, TokenizerSizes, Window, WindowSample, WindowStatistics
from skewtool.profiling.window_counter import WindowCounter

__all__ = ["DEFAULT_WINDOWS", "profile"]

DEFAULT_WINDOWS = (8192,)

_SPAN_TOKENS = 1 << 22  # small enough that the workers end together
_MOST_IDS = 1 << 28  # a table of more rows is no vocabulary but a wrong dtype


@dataclass(frozen=True)
class _Span:
    source: int
    start: int
    stop: int | None


@dataclass(frozen=True)
class _Settings:
    corpus: Corpus
    vocab_size: int | None
    windows: tuple[int, ...]
    sample_size: int
    seed: int
    allow: frozenset[str]
    progress: Progress | None
    interrupted: threading.Event = field(default_factory=threading.Event)


class _Worker:
    """The tables of one thread."""

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings
        # One row more than the vocabulary: where allowed, bad ids are counted there and dropped at the end.
        table_size = 1 if settings.vocab_size is None else settings.vocab_size + 1
        self.windows = [WindowCounter(length, table_size, settings.sample_size) for length in settings.windows]
        self.counters: list[WindowCounter | PlainCounter] = [*self.windows] or [PlainCounter(table_size)]
        self.digests: dict[int, int] = {}
        self.tokens: dict[int, int] = {}

    def count(self, span: _Span) -> None:
        source = self.settings.corpus.sources[span.source]
        key = _source_key(source.name, self.settings.seed)
        for counter in self.counters:
            counter.begin(key, span.start)
        position = span.start
        for ids in source.blocks(span.start, span.stop, progress=self.settings.progress):
            if self.settings.interrupted.is_set():
                break
            index = self._checked(ids, source, position)
            for counter in self.counters:
                counter.add(index)
            position += ids.size
        digests = [counter.end() for counter in self.counters]
        self.digests[span.source] = (self.digests.get(span.source, 0) + digests[0]) % 2**64
        self.tokens[span.source] = self.tokens.get(span.source, 0) + position - span.start

    def _checked(self, ids: Ids, source: Source, position: int) -> Ids:
        vocab_size = self.settings.vocab_size
        if vocab_size is not None:
            return as_table_index(ids, vocab_size, source, position, self.settings.allow)
        check_no_end_mark(ids, source, position)
        index = as_table_index(ids, _MOST_IDS, source, position, ())
        needed = int(index.max(initial=0)) + 1
        if needed > self.counters[0].table_size:
            for counter in self.counters:
                counter.grow(max(needed, min(2 * counter.table_size, _MOST_IDS)))
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
) -> Profile:
    """Counts a corpus in one pass.

    `vocab_size`: rows of the model's table; ids at or above it are an error. By default the number of ids of the
    `tokenizer`, else the highest id met plus one. `windows`: window lengths in tokens; none for counts alone.
    `sample_size`: whole windows kept for each length. `allow`: checks to go on after (see `skewtool.profiling.checks`).
    `progress` is called with the number of bytes read since its last call, from any worker's thread.

    Errors: CorpusError when the corpus cannot be read or holds ids that the vocabulary does not; ProfileError for
    parameters out of range.
    """
    unknown = set(allow) - set(ALLOWABLE)
    if unknown:
        raise ProfileError(f"unknown check {sorted(unknown)[0]!r} to allow; known are {', '.join(ALLOWABLE)}")
    vocab_size = None if vocab_size is None else _whole_number("vocab_size", vocab_size, most=_MOST_IDS)
    sample_size, workers = _whole_number("sample_size", sample_size), _whole_number("workers", workers)
    seed = _whole_number("seed", seed)
    lengths = tuple(sorted({_whole_number("window", length, most=2**31 - 1) for length in windows}))
    if (lengths and lengths[0] < 1) or sample_size < 0 or workers < 1 or not (vocab_size is None or vocab_size > 0):
        raise ProfileError(
            "window lengths, workers and vocabulary size must be at least 1, sample size at least 0; "
            f"got {list(windows)}, {workers}, {vocab_size}, {sample_size}"
        )
    notes = list(corpus.notes)
    if tokenizer is not None:
        vocab_size = _checked_rows(vocab_size, tokenizer)
    if vocab_size is not None:
        notes += check_dtype_holds_vocabulary(corpus, vocab_size, allow)
    _compile(corpus)
    settings = _Settings(corpus, vocab_size, lengths, sample_size, seed, frozenset(allow), progress)
    done = _run(settings, workers)
    return _combine(settings, done, notes, tokenizer)


def _whole_number(name: str, value: object, most: int = 2**63 - 1) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ProfileError(f"{name} must be a whole number, got {value!r}") from None
    if not -most - 1 <= number <= most:
        raise ProfileError(f"{name} must be at most {most}, got {number}")
    return number


def _compile(corpus: Corpus) -> None:
    """Compiles, or loads from disk, the loops for the types of this corpus, before the clock and the threads start."""
    for dtype in {source.dtype or np.dtype(np.uint32) for source in corpus.sources}:
        index = as_table_index(np.zeros(1, dtype.newbyteorder("=")), 1, corpus.sources[0], 0, ())
        for scratch in (WindowCounter(1, 1, 1), PlainCounter(1)):
            scratch.begin(0, 0)
            scratch.add(index)
            scratch.end()


def _checked_rows(vocab_size: int | None, tokenizer: TokenizerFile) -> int:
    if vocab_size is not None and vocab_size < tokenizer.num_ids:
        raise ProfileError(
            f"--vocab-size {vocab_size} is below the {tokenizer.num_ids} ids of {tokenizer.path}; the model's table "
            "needs a row for each"
        )
    return tokenizer.num_ids if vocab_size is None else vocab_size


def _source_key(name: str, seed: int) -> int:
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest, "little")


def _spans(corpus: Corpus, windows: Sequence[int]) -> Iterator[_Span]:
    """Cuts seekable sources at multiples of all window lengths; others are one span.

    Tokens that are decoded together mostly stay in one span.
    """
    common = math.lcm(*windows)  # 1 without windows
    for number, source in enumerate(corpus.sources):
        grain = 0 if source.grain == 1 else 4 * source.grain
        step = common * max(1, -(-grain // common), _SPAN_TOKENS // common)
        if not source.seekable or source.num_tokens is None:
            yield _Span(number, 0, None)
            continue
        for start in range(0, source.num_tokens, step):
            yield _Span(number, start, min(start + step, source.num_tokens))


def _run(settings: _Settings, workers: int) -> list[_Worker]:
    """Counts all spans; the error of the earliest bad span wins, whichever thread met it."""
    waiting: queue.SimpleQueue[tuple[int, _Span]] = queue.SimpleQueue()
    for item in enumerate(_spans(settings.corpus, settings.windows)):
        waiting.put(item)
    failures: list[tuple[int, Exception]] = []
    failed = threading.Event()  # no further spans; those begun go on, since an earlier one may fail, too

    def work() -> _Worker:
        worker = _Worker(settings)
        while not failed.is_set():
            try:
                number, span = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                worker.count(span)
            except Exception as error:
                failures.append((number, error))
                failed.set()
        return worker

    with ThreadPoolExecutor(workers) as pool:
        try:
            done = [future.result() for future in [pool.submit(work) for _ in range(workers)]]
        except BaseException:  # also a keyboard interrupt: the threads end after their current block
            failed.set()
            settings.interrupted.set()
            raise
    if failures:
        raise min(failures, key=lambda failure: failure[0])[1]
    return done


def _combine(settings: _Settings, workers: Sequence[_Worker], notes: list[str], tokenizer: TokenizerFile | None) -> Profile:
    if not any(any(worker.tokens.values()) for worker in workers):
        raise CorpusError(f"the corpus holds no tokens ({settings.corpus.sources[0].path} and what is with it)")
    vocab_size, dropped = settings.vocab_size, settings.corpus.dropped
    num_dropped = 0
    if vocab_size is None:
        vocab_size = max(int(np.flatnonzero(worker.counters[0].counts)[-1]) + 1
                         for worker in workers if worker.counters[0].counts.any())  # fmt: skip
        notes.append(
            f"the vocabulary size was not given: taken as the highest id plus one, {vocab_size}; a model's table may "
            "have more rows (--vocab-size)"
        )
    else:
        num_dropped = sum(int(worker.counters[0].counts[vocab_size]) for worker in workers)
        if num_dropped:
            dropped = dropped | {BAD_IDS: num_dropped}
            notes.append(f"{num_dropped} ids outside the vocabulary of {vocab_size} were left out")
    return Profile(
        counts=_sum([worker.counters[0].counts for worker in workers], vocab_size),
        windows=tuple(
            WindowStatistics(
                length=length,
                num_windows=sum(worker.windows[i].num_windows for worker in workers),
                presence=_sum([worker.windows[i].presence for worker in workers], vocab_size),
                sample=WindowSample.of(
                    _without(
                        vocab_size if num_dropped else None, [w for worker in workers for w in worker.windows[i].kept()]
                    ),
                    settings.sample_size,
                ),
            )
            for i, length in enumerate(settings.windows)
        ),
        sources=_source_rows(settings.corpus, workers),
        sample_size=settings.sample_size,
        seed=settings.seed,
        dropped=dropped,
        notes=tuple(sorted(set(notes))),
        tokenizer=None if tokenizer is None else TokenizerSizes(
            tokenizer.fingerprint, tokenizer.base_size, tokenizer.size_with_added, tokenizer.num_ids
        ),
    )  # fmt: skip


def _without(dropped_id: int | None, windows: Iterable[Window]) -> Iterator[Window]:
    """The windows without the id that stands for dropped tokens."""
    for key, ids, counts in windows:
        yield (key, ids, counts) if dropped_id is None else (key, ids[ids != dropped_id], counts[ids != dropped_id])


def _sum(tables: Sequence[npt.NDArray[np.int64]], vocab_size: int) -> npt.NDArray[np.int64]:
    total = np.zeros(vocab_size, np.int64)
    for table in tables:
        rows = min(vocab_size, table.size)
        total[:rows] += table[:rows]
    return total


def _source_rows(corpus: Corpus, workers: Sequence[_Worker]) -> tuple[SourceRow, ...]:
    rows = []
    for number, source in enumerate(corpus.sources):
        digest = sum(worker.digests.get(number, 0) for worker in workers) % 2**64
        rows.append(SourceRow(source.name, sum(worker.tokens.get(number, 0) for worker in workers), f"{digest:016x}"))
    return tuple(sorted(rows))
