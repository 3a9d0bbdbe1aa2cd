"""Speed of profiling beside plain reading of the same bytes, numpy.bincount and polars, in one run.

All take the same raw uint32 file from the page cache. Rounds are interleaved and medians shown, because the machine may
be shared; only the ratios within a run mean anything. Without --corpus the file is drawn from the measured frequencies
in data/llama3.profile.safetensors.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars

import skewtool
from skewtool.profiling.plain_counter import PlainCounter
from skewtool.profiling.window_counter import WindowCounter

CHUNK = 1 << 20
BLOCK = 1 << 18
LLAMA3 = Path(__file__).parent.parent / "data" / "llama3.profile.safetensors"


def drawn_corpus(path: Path, num_tokens: int) -> None:
    """Writes independent draws from the measured frequencies: real skew, but without the burstiness of text."""
    counts = skewtool.Profile.load(LLAMA3).counts
    ids = np.random.default_rng(0).choice(counts.size, num_tokens, p=counts / counts.sum())
    ids.astype("<u4").tofile(path)


def contenders(path: Path, vocab_size: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name. The first reads, the others in memory count ids that are already there."""
    ids = np.fromfile(path, np.uint32)
    corpus = skewtool.open_corpus(path, dtype="uint32")
    buffer = bytearray(4 * BLOCK)

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    def bincount() -> None:
        total = np.zeros(vocab_size, np.int64)
        for first in range(0, ids.size, CHUNK):
            total += np.bincount(ids[first : first + CHUNK], minlength=vocab_size)

    def count(counter: PlainCounter | WindowCounter) -> None:
        counter.begin(0, 0)
        for first in range(0, ids.size, BLOCK):
            block = ids[first : first + BLOCK]
            assert block.max() < vocab_size
            counter.add(block)
        counter.end()

    series = polars.Series(ids)
    return {
        "read the file": read,
        "numpy.bincount, chunks of 1 Mi": bincount,
        "polars value_counts (all cores)": lambda: series.value_counts(),
        "skewtool counts": lambda: count(PlainCounter(vocab_size)),
        "skewtool counts + presence": lambda: count(WindowCounter(8192, vocab_size, 0)),
        "skewtool.profile, counts, 1 worker": lambda: skewtool.profile(corpus, vocab_size=vocab_size, windows=()),
        "skewtool.profile, 1 worker": lambda: skewtool.profile(corpus, vocab_size=vocab_size),
        "skewtool.profile, 2 workers": lambda: skewtool.profile(corpus, vocab_size=vocab_size, workers=2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--corpus", type=Path, help="raw uint32 ids")
    parser.add_argument("--vocab-size", type=int, default=128_256)
    parser.add_argument("--tokens", type=int, default=1 << 25, help="to draw when no corpus is given")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.corpus or Path(folder) / "drawn.bin"
        if options.corpus is None:
            drawn_corpus(path, options.tokens)
        num_tokens = path.stat().st_size // 4
        timed = contenders(path, options.vocab_size)
        seconds: dict[str, list[float]] = {name: [] for name in timed}
        for turn in range(options.rounds + 1):  # the first round compiles and warms the caches
            for name, run in timed.items():
                start = time.perf_counter()
                run()
                if turn:
                    seconds[name].append(time.perf_counter() - start)
    rates = {name: num_tokens / statistics.median(each) / 1e9 for name, each in seconds.items()}
    base, reading = rates["numpy.bincount, chunks of 1 Mi"], rates["read the file"]
    print(f"{num_tokens:,} tokens, median of {options.rounds} rounds")
    print(f"{'':36} {'G tokens/s':>10} {'x bincount':>10} {'x reading':>10}")
    for name, rate in rates.items():
        print(f"{name:36} {rate:10.3f} {rate / base:10.2f} {rate / reading:10.2f}")


if __name__ == "__main__":
    main()
