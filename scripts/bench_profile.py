"""Speed and memory of profiling beside other ways to count the same tokens, in one run.

Three tables: counting ids that are in memory already; files of each format, read and counted, each contender in a process
of its own that also tells its peak memory; and one large raw file. All counts must be equal. Files are in the page cache,
rounds are interleaved and medians shown, because the machine may be shared; only ratios within a run mean anything.
Without --corpus the ids are drawn from the measured frequencies in data/llama3.profile.safetensors; text is the source of
Python's standard library.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import skewtool
from skewtool.profiling.plain_counter import PlainCounter
from skewtool.profiling.window_counter import WindowCounter

CHUNK = 1 << 20
BLOCK = 1 << 18
DOCUMENT = 2000
WINDOW = 8192
LLAMA3 = Path(__file__).parent.parent / "data" / "llama3.profile.safetensors"

Counts = npt.NDArray[np.int64]
Counting = Callable[[Path, int], Counts]


def drawn_ids(num_tokens: int) -> npt.NDArray[np.uint32]:
    """Independent draws from the measured frequencies: real skew, but without the burstiness of text."""
    counts = skewtool.Profile.load(LLAMA3).counts
    return np.random.default_rng(0).choice(counts.size, num_tokens, p=counts / counts.sum()).astype(np.uint32)


# In memory.


def in_memory(path: Path, vocab_size: int) -> dict[str, Callable[[], object]]:
    """What is timed on ids that are there already, by name; the first reads the file, for comparison."""
    import polars

    ids = np.fromfile(path, np.uint32)
    series = polars.Series(ids)
    buffer = bytearray(4 * BLOCK)

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    def count(counter: PlainCounter | WindowCounter) -> None:
        counter.begin(0, 0)
        for first in range(0, ids.size, BLOCK):
            block = ids[first : first + BLOCK]
            assert block.max() < vocab_size
            counter.add(block)
        counter.end()

    return {
        "read the file": read,
        "numpy.bincount, chunks of 1 Mi": lambda: bincount((ids,), vocab_size),
        "polars value_counts (all cores)": lambda: series.value_counts(),
        "skewtool counts": lambda: count(PlainCounter(vocab_size)),
        "skewtool counts + presence": lambda: count(WindowCounter(WINDOW, vocab_size, 0)),
    }


def bincount(arrays: Iterable[npt.NDArray[Any]], vocab_size: int) -> Counts:
    total = np.zeros(vocab_size, np.int64)
    for ids in arrays:
        for first in range(0, ids.size, CHUNK):
            total += np.bincount(ids[first : first + CHUNK], minlength=vocab_size)
    return total


def compare_in_memory(path: Path, vocab_size: int, rounds: int) -> None:
    timed = in_memory(path, vocab_size)
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(rounds + 1):  # the first round compiles and warms the caches
        for name, run in timed.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    num_tokens = path.stat().st_size // 4
    rates = {name: num_tokens / statistics.median(each) / 1e9 for name, each in seconds.items()}
    base, reading = rates["numpy.bincount, chunks of 1 Mi"], rates["read the file"]
    print(f"{num_tokens:,} uint32 tokens in memory, median of {rounds} rounds")
    print(f"{'':34} {'G tokens/s':>10} {'x bincount':>10} {'x reading':>10}")
    for name, rate in rates.items():
        print(f"{name:34} {rate:10.3f} {rate / base:10.2f} {rate / reading:10.2f}")


# From files. Each contender gives the count of each id.


def _skewtool(workers: int, windows: tuple[int, ...] = (WINDOW,)) -> Counting:
    def run(path: Path, vocab_size: int) -> Counts:
        tokenizer = path.with_name("tokenizer.json") if path.suffix == ".txt" else None
        corpus = skewtool.open_corpus(path, dtype="uint32" if path.suffix == ".bin" else None, tokenizer=tokenizer)
        return skewtool.profile(corpus, vocab_size=vocab_size, windows=windows, workers=workers).counts

    return run


def _array(path: Path) -> npt.NDArray[np.uint32]:
    return np.fromfile(path, np.uint32) if path.suffix == ".bin" else np.load(path)


def _numpy(path: Path, vocab_size: int) -> Counts:
    return bincount((_array(path),), vocab_size)


def _filled(ids: npt.ArrayLike, counts: npt.ArrayLike, vocab_size: int) -> Counts:
    total = np.zeros(vocab_size, np.int64)
    total[np.asarray(ids)] = np.asarray(counts)
    return total


def _polars(path: Path, vocab_size: int) -> Counts:
    import polars

    if path.suffix in (".bin", ".npy"):
        frame = polars.DataFrame({"input_ids": _array(path)}).lazy()
    else:
        scan: Any = {".arrow": polars.scan_ipc, ".parquet": polars.scan_parquet, ".jsonl": polars.scan_ndjson}[path.suffix]
        frame = scan(path).select(polars.col("input_ids").explode())
    found = frame.group_by("input_ids").len().collect()
    return _filled(found["input_ids"].to_numpy(), found["len"].to_numpy(), vocab_size)


def _duckdb(path: Path, vocab_size: int) -> Counts:
    import duckdb

    rows = f"(SELECT unnest(input_ids) AS id FROM '{path}')"
    if path.suffix in (".bin", ".npy"):
        ids = _array(path)  # noqa: F841 (duckdb finds it by its name)
        rows = "(SELECT column0 AS id FROM ids)"
    query: Any = duckdb.sql(f"SELECT id, count(*) AS n FROM {rows} GROUP BY id")
    found = query.fetchnumpy()
    return _filled(found["id"], found["n"], vocab_size)


def _pyarrow(path: Path, vocab_size: int) -> Counts:
    import pyarrow
    import pyarrow.compute
    import pyarrow.json
    import pyarrow.parquet

    if path.suffix == ".arrow":
        with pyarrow.memory_map(str(path)) as file:
            column = pyarrow.ipc.open_file(file).read_all()["input_ids"]
    elif path.suffix == ".parquet":
        column = pyarrow.parquet.read_table(path, columns=["input_ids"])["input_ids"]
    else:
        column = pyarrow.json.read_json(path)["input_ids"]
    found = pyarrow.compute.value_counts(pyarrow.compute.list_flatten(column))
    return _filled(found.field("values"), found.field("counts"), vocab_size)


def _orjson(path: Path, vocab_size: int) -> Counts:
    import orjson

    with path.open("rb") as lines:
        return bincount((np.array(orjson.loads(line)["input_ids"]) for line in lines), vocab_size)


def _tokenizers(path: Path, vocab_size: int) -> Counts:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path.with_name("tokenizer.json")))
    texts = path.read_text(encoding="utf-8").split("\nimport ")
    pieces = [texts[0], *("\nimport " + text for text in texts[1:])]
    encoded = tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
    return bincount((np.array(each.ids) for each in encoded), vocab_size)


OURS = {
    "skewtool, counts": _skewtool(1, ()),
    "skewtool": _skewtool(1),
    "skewtool, 2 workers": _skewtool(2),
}
OTHERS: dict[str, dict[str, Counting]] = {
    "bin": {"numpy": _numpy, "polars": _polars, "duckdb": _duckdb},
    "npy": {"numpy": _numpy, "polars": _polars, "duckdb": _duckdb},
    "arrow": {"pyarrow": _pyarrow, "polars": _polars},
    "parquet": {"pyarrow": _pyarrow, "polars": _polars, "duckdb": _duckdb},
    "jsonl": {"orjson + numpy": _orjson, "pyarrow": _pyarrow, "polars": _polars, "duckdb": _duckdb},
    "txt": {"tokenizers + numpy": _tokenizers},
}


def write_files(folder: Path, ids: npt.NDArray[np.uint32]) -> dict[str, int]:
    """The same ids in every format (JSON lines: an eighth of them), and text; tokens of each."""
    import pyarrow
    import pyarrow.parquet

    def documents(flat: npt.NDArray[np.uint32]) -> Any:
        offsets = np.append(np.arange(0, flat.size, DOCUMENT), flat.size).astype(np.int32)
        return pyarrow.table({"input_ids": pyarrow.ListArray.from_arrays(offsets, flat)})

    ids.tofile(folder / "ids.bin")
    np.save(folder / "ids.npy", ids)
    table = documents(ids)
    with pyarrow.OSFile(str(folder / "ids.arrow"), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    pyarrow.parquet.write_table(table, folder / "ids.parquet", row_group_size=1000)
    few = ids[: ids.size // 8]
    with (folder / "ids.jsonl").open("w") as lines:
        for first in range(0, few.size, DOCUMENT):
            lines.write(json.dumps({"input_ids": few[first : first + DOCUMENT].tolist()}) + "\n")
    return dict.fromkeys(("bin", "npy", "arrow", "parquet"), ids.size) | {"jsonl": few.size, "txt": _write_text(folder)}


def _write_text(folder: Path) -> int:
    import make_demo_corpus  # type: ignore[import-not-found]  # beside this file

    texts = make_demo_corpus.standard_library()
    make_demo_corpus.train_tokenizer(texts[:200]).save(str(folder / "tokenizer.json"))
    (folder / "ids.txt").write_text("".join(texts), encoding="utf-8")
    return int(_tokenizers(folder / "ids.txt", make_demo_corpus.VOCAB_SIZE).sum())


def one(kind: str, name: str, path: Path, vocab_size: int) -> None:
    """In a process of its own: a first run, which compiles and warms, then a timed one; prints both as JSON."""
    run = (OURS | OTHERS.get(kind, {}))[name]
    first_counts = run(path, vocab_size) if kind != "large" else None
    start = time.perf_counter()
    counts = run(path, vocab_size)
    seconds = time.perf_counter() - start
    assert first_counts is None or np.array_equal(counts, first_counts)
    status = Path("/proc/self/status").read_text()  # getrusage would begin with the memory of the parent
    peak = next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "checksum": int(counts @ np.arange(vocab_size))}))


def in_a_process(kind: str, name: str, path: Path, vocab_size: int) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", __file__, "--one", kind, name, str(path), "--vocab-size", str(vocab_size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench_profile: {name} on {path.name} failed: {done.stderr.strip().splitlines()[-1:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def compare_files(kind: str, path: Path, num_tokens: int, vocab_size: int, rounds: int) -> None:
    names = [*OURS, *OTHERS.get(kind, {})]
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            seen[name].append(in_a_process(kind, name, path, vocab_size))
    assert len({each["checksum"] for results in seen.values() for each in results}) == 1, f"other counts of {path.name}"
    base = statistics.median(each["seconds"] for each in seen["skewtool"])
    for name in names:
        seconds = statistics.median(each["seconds"] for each in seen[name])
        peak = max(each["peak_bytes"] for each in seen[name])
        print(
            f"{path.name:12} {name:20} {num_tokens / seconds / 1e6:10.1f} {base / seconds:10.2f} {peak / 2**20:10,.0f}",
            flush=True,
        )


def write_large(path: Path, ids: npt.NDArray[np.uint32], num_bytes: int) -> None:
    """The ids again and again, each time from another place on."""
    with path.open("wb") as file:
        for turn in range(-(-num_bytes // ids.nbytes)):
            part = np.roll(ids, 7919 * turn)[: (num_bytes - file.tell()) // 4]
            part.tofile(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="raw uint32 ids")
    parser.add_argument("--vocab-size", type=int, default=128_256)
    parser.add_argument("--tokens", type=int, default=1 << 25, help="to draw when no corpus is given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=float, default=4, metavar="GB", help="size of the large file; 0 for none")
    parser.add_argument("--one", nargs=3, metavar=("KIND", "NAME", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, name, file = options.one
        one(kind, name, Path(file), options.vocab_size)
        return
    ids = drawn_ids(options.tokens) if options.corpus is None else np.fromfile(options.corpus, np.uint32)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        tokens = write_files(folder, ids)
        compare_in_memory(folder / "ids.bin", options.vocab_size, options.rounds)
        print(f"\n{'file':12} {'read and counted by':20} {'M tokens/s':>10} {'x skewtool':>10} {'peak MiB':>10}")
        for kind, number in tokens.items():
            compare_files(kind, folder / f"ids.{kind}", number, options.vocab_size, options.rounds)
        if options.large:
            path = folder / "large.bin"
            write_large(path, ids, int(options.large * 10**9))
            compare_files("large", path, path.stat().st_size // 4, options.vocab_size, 3)


if __name__ == "__main__":
    main()
