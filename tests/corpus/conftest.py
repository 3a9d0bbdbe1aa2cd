"""Writers of small corpora in each format, and a tiny tokenizer.

Fixtures are functions that take the path to write, so that property tests (which run many times per fixture) can use
them with `new_dir`.
"""

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import settings
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from skewtool.corpus import Corpus, open_corpus

settings.register_profile("skewtool", deadline=None, max_examples=60)
settings.load_profile("skewtool")

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MEGATRON_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


@pytest.fixture(scope="session")
def new_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes a fresh directory at each call."""
    return lambda: tmp_path_factory.mktemp("corpus")


@pytest.fixture(scope="session")
def write_raw() -> Callable[..., Path]:
    """write_raw(path, ids, dtype="uint16"): no header."""

    def write(path: Path, ids: npt.ArrayLike, dtype: str = "uint16") -> Path:
        np.asarray(ids, np.int64).astype(dtype).tofile(path)
        return path

    return write


@pytest.fixture(scope="session")
def write_llmc() -> Callable[..., Path]:
    """write_llmc(path, ids, magic=, version=, num_tokens=, dtype=): as llm.c does."""

    def write(
        path: Path,
        ids: npt.ArrayLike,
        magic: int = 20240520,
        version: int = 1,
        num_tokens: int | None = None,
        dtype: str = "<u2",
    ) -> Path:
        tokens = np.asarray(ids, np.int64).astype(dtype)
        header = np.zeros(256, "<i4")
        header[:3] = magic, version, tokens.size if num_tokens is None else num_tokens
        path.write_bytes(header.tobytes() + tokens.tobytes())
        return path

    return write


@pytest.fixture(scope="session")
def write_megatron() -> Callable[..., Path]:
    """write_megatron(prefix, sequences, dtype=, code=, documents=, offsets=, modes=, data=): a pair; returns the .idx."""

    def write(
        prefix: Path,
        sequences: Sequence[Sequence[int]],
        dtype: str = "uint16",
        code: int | None = None,
        documents: Sequence[int] | None = None,
        offsets: Sequence[int] | None = None,
        modes: bytes = b"",
        data: bytes | None = None,
    ) -> Path:
        lengths = np.array([len(sequence) for sequence in sequences], "<i4")
        ids = np.array([token for sequence in sequences for token in sequence], np.int64).astype(dtype)
        starts = (np.cumsum(lengths, dtype="<i8") - lengths) * ids.itemsize
        indices = list(range(len(sequences) + 1)) if documents is None else list(documents)
        head = struct.pack(
            "<9sQBQQ", b"MMIDIDX\0\0", 1, MEGATRON_CODES[dtype] if code is None else code, lengths.size, len(indices)
        )
        stored = starts if offsets is None else np.array(offsets, "<i8")
        index = Path(f"{prefix}.idx")
        index.write_bytes(head + lengths.tobytes() + stored.tobytes() + np.array(indices, "<i8").tobytes() + modes)
        index.with_suffix(".bin").write_bytes(ids.tobytes() if data is None else data)
        return index

    return write


@pytest.fixture(scope="session")
def ids_of() -> Callable[..., list[int]]:
    """ids_of(corpus, block_tokens=...): all ids, after checking that blocks are what they should be."""

    def read(corpus: Corpus, block_tokens: int = 1 << 18) -> list[int]:
        blocks = list(corpus.blocks(block_tokens))
        assert all(block.ndim == 1 and block.dtype.isnative and block.size <= block_tokens for block in blocks)
        return [int(token) for block in blocks for token in block]

    return read


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Path]:
    """make_tokenizer(path, pattern="gpt2" or "llama3", with_bos=False): a trained byte-level BPE as tokenizer.json."""

    def make(path: Path, pattern: str = "gpt2", with_bos: bool = False) -> Path:
        tokenizer = Tokenizer(models.BPE())
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
        split = pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated")
        tokenizer.pre_tokenizer = byte_level if pattern == "gpt2" else pre_tokenizers.Sequence([split, byte_level])
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=320,
            min_frequency=1,
            show_progress=False,
            special_tokens=["<bos>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        tokenizer.train_from_iterator(["the cat_\nsat. on\n\nthe mat_\n 12 ab\nba ..\n"] * 20, trainer)
        if with_bos:
            tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
        tokenizer.save(str(path))
        return path

    return make


Documents = Sequence[Sequence[int]]


def _flat(documents: Documents, dtype: str = "<u4") -> npt.NDArray[Any]:
    return np.array([token for document in documents for token in document], np.int64).astype(dtype)


def _lengths(documents: Documents, dtype: str = "<i8") -> npt.NDArray[Any]:
    return np.array([len(document) for document in documents], dtype)


def _fairseq(folder: Path, documents: Documents) -> Path:
    lengths = _lengths(documents)
    starts = (np.cumsum(lengths) - lengths) * 4
    head = struct.pack("<9sQBQ", b"MMIDIDX\0\0", 1, 9, len(documents))
    (folder / "train.idx").write_bytes(head + lengths.astype("<i4").tobytes() + starts.tobytes())
    (folder / "train.bin").write_bytes(_flat(documents).tobytes())
    return folder / "train.idx"


def _cached(folder: Path, documents: Documents, plus: int) -> Path:
    """fairseq's legacy builder stores ids plus one and no document index; GPT-NeoX's is the other way round."""
    lengths, count = _lengths(documents), len(documents)
    head = struct.pack("<8sQQQQQ", b"TNTIDX\0\0", 1, 4, 4, count, count)
    head += b"" if plus else struct.pack("<Q", count + 1)
    offsets = [np.arange(count + 1, dtype="<i8"), np.concatenate([[0], np.cumsum(lengths)]).astype("<i8"), lengths]
    offsets += [] if plus else [np.arange(count + 1, dtype="<i8")]
    (folder / "train.idx").write_bytes(head + b"".join(part.tobytes() for part in offsets))
    (folder / "train.bin").write_bytes((_flat(documents, "<i4") + plus).tobytes())
    return folder / "train.idx"


def _packed(folder: Path, documents: Documents) -> Path:
    ids = _flat(documents, "<i4")
    (folder / "train_0000000000.bin").write_bytes(struct.pack("<7sQBQ", b"LITPKDS", 1, 4, ids.size) + ids.tobytes())
    return folder


def _shard(bodies: Sequence[bytes], config: bytes = b"") -> bytes:
    begin = 4 * (len(bodies) + 2) + len(config)
    offsets = np.cumsum([begin, *map(len, bodies)], dtype="<u4")
    return struct.pack("<I", len(bodies)) + offsets.astype("<u4").tobytes() + config + b"".join(bodies)


def _litdata(folder: Path, documents: Documents, compressed: bool) -> Path:
    content = _shard([_flat([document], "<i4").tobytes() for document in documents])
    name = "chunk-0-0.zstd.bin" if compressed else "chunk-0-0.bin"
    (folder / name).write_bytes(_zstd(content) if compressed else content)
    chunk = {
        "chunk_bytes": len(content), "chunk_size": len(documents), "dim": int(_lengths(documents).sum()), "filename": name,
    }  # fmt: skip
    config = {
        "compression": "zstd" if compressed else None, "chunk_size": None, "chunk_bytes": 1 << 26, "encryption": None,
        "data_format": ["no_header_tensor:16"], "data_spec": "[1]", "item_loader": "TokensLoader",
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config, "updated_at": "1"}))
    return folder


def _zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


def _mds(folder: Path, documents: Documents, encoding: str = "ndarray:uint32", compression: str | None = None) -> Path:
    """With a second column of variable size, before that of the tokens."""
    bodies = []
    for document in documents:
        ids = _flat([document], "<u4").tobytes()
        shape = struct.pack("<BH", (1 << 2) | 1, len(document))
        body = {"ndarray:uint32": shape + ids, "ndarray": b"\x20" + shape + ids, "bytes": ids}[encoding]
        text = "é".encode()
        bodies.append(struct.pack("<II", len(text), len(body)) + text + body)
    columns = {"column_names": ["note", "tokens"], "column_encodings": ["str", encoding], "column_sizes": [None, None]}
    config = json.dumps({**columns, "format": "mds", "version": 2}, sort_keys=True).encode()
    content = _shard(bodies, config)
    compressors: dict[str | None, Callable[[bytes], bytes]] = {None: bytes, "zstd:7": _zstd, "gz": gzip.compress}
    compress = compressors[compression]
    raw = {"basename": "shard.00000.mds", "bytes": len(content), "hashes": {}}
    name = raw["basename"] if compression is None else f"{raw['basename']}.{compression.partition(':')[0]}"
    stored = compress(content)
    (folder / str(name)).write_bytes(stored)
    shard = {
        **columns, "compression": compression, "format": "mds", "hashes": [], "raw_data": raw, "samples": len(documents),
        "size_limit": 1 << 26, "version": 2,
        "zip_data": None if compression is None else {"basename": name, "bytes": len(stored), "hashes": {}},
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"shards": [shard], "version": 2}, sort_keys=True))
    return folder


def _datatrove(folder: Path, documents: Documents) -> Path:
    ids = _flat(documents)
    (folder / "00000_00000_shuffled.ds").write_bytes(ids.tobytes())
    (folder / "00000_00000_shuffled.ds.index").write_bytes(np.cumsum(_lengths(documents), dtype="<u8").tobytes())
    (folder / "00000_00000_shuffled.ds.metadata").write_text(f"some/tokenizer|4\n{ids.size}\n{ids.size} T")
    return folder


def _olmo(folder: Path, documents: Documents) -> Path:
    ends = np.cumsum(_lengths(documents))
    starts = ends - _lengths(documents)
    lines = "".join(f"{a},{b},d{i},src,{i}\n" for i, (a, b) in enumerate(zip(starts, ends, strict=True)))
    (folder / "part-0-00000.npy").write_bytes(_flat(documents).tobytes())
    (folder / "part-0-00000.csv.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


def _table(documents: Documents) -> pa.Table:
    return pa.table({
        "n": pa.array([len(document) for document in documents], pa.int64()),
        "input_ids": pa.array([list(document) for document in documents], pa.list_(pa.int32())),
    })  # fmt: skip


def _arrow(path: Path, documents: Documents, new: Callable[..., Any] = pa.ipc.new_stream) -> Path:
    table = _table(documents)
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def _hf(folder: Path, documents: Documents) -> Path:
    """Two shards, as `save_to_disk` writes them, and a cache file that is none of them."""
    half = len(documents) // 2
    for number, part in enumerate((documents[:half], documents[half:])):
        _arrow(folder / f"data-{number:05d}-of-00002.arrow", part)
    _arrow(folder / "cache-1234.arrow", documents)
    files = [{"filename": f"data-{number:05d}-of-00002.arrow"} for number in range(2)]
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_fingerprint": "0", "_split": None}, indent=2))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}, indent=2))
    return folder


def _hf_dict(folder: Path, documents: Documents) -> Path:
    for split in ("test", "train"):
        (folder / split).mkdir()
    _hf(folder / "test", documents[:2])
    _hf(folder / "train", documents[2:])
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["test", "train"]}))
    return folder


def _parquet(folder: Path, documents: Documents) -> Path:
    pq.write_table(_table(documents), folder / "a.parquet", row_group_size=2, write_page_checksum=True)
    return folder / "a.parquet"


def _jsonl(documents: Documents) -> bytes:
    return b"".join(json.dumps({"input_ids": list(map(int, each)), "n": 3}).encode() + b"\n" for each in documents)


def _tar(path: Path, documents: Documents, ending: str) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for number, document in enumerate(documents):
            content = io.BytesIO()
            if ending == "npy":
                np.save(content, _flat([document]))
            else:
                content.write(json.dumps({"tokens": list(map(int, document))}).encode())
            for name, data in ((f"s/{number:04d}.cls", b"7"), (f"s/{number:04d}.{ending}", content.getvalue())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return path


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _saved(save: Callable[..., object], path: Path, array: npt.NDArray[Any]) -> Path:
    save(path, array)
    return path


def _compressed_npz(path: Path, array: npt.NDArray[Any]) -> Path:
    np.savez_compressed(path, tokens=array, other=np.zeros(3))
    return path


WRITERS: dict[str, Callable[[Path, Documents], Path]] = {
    "raw": lambda folder, documents: _written(folder / "a.bin", _flat(documents).tobytes()),
    "olmo": _olmo,
    "npy": lambda folder, documents: _saved(np.save, folder / "a.npy", _flat(documents)),
    "npz": lambda folder, documents: _saved(np.savez, folder / "a.npz", _flat(documents)),
    "npz deflated": lambda folder, documents: _compressed_npz(folder / "a.npz", _flat(documents)),
    "fairseq": _fairseq,
    "fairseq cached": lambda folder, documents: _cached(folder, documents, plus=1),
    "neox cached": lambda folder, documents: _cached(folder, documents, plus=0),
    "packed": _packed,
    "litdata": lambda folder, documents: _litdata(folder, documents, compressed=False),
    "litdata zstd": lambda folder, documents: _litdata(folder, documents, compressed=True),
    "mds": _mds,
    "mds zstd": lambda folder, documents: _mds(folder, documents, compression="zstd:7"),
    "mds gz": lambda folder, documents: _mds(folder, documents, "ndarray", compression="gz"),
    "mds bytes": lambda folder, documents: _mds(folder, documents, "bytes"),
    "datatrove": _datatrove,
    "hf": _hf,
    "hf dict": _hf_dict,
    "arrow stream": lambda folder, documents: _arrow(folder / "a.arrow", documents),
    "arrow file": lambda folder, documents: _arrow(folder / "a.arrow", documents, pa.ipc.new_file),
    "parquet": _parquet,
    "jsonl": lambda folder, documents: _written(folder / "a.jsonl", _jsonl(documents)),
    "jsonl gz": lambda folder, documents: _written(folder / "a.jsonl.gz", gzip.compress(_jsonl(documents))),
    "jsonl zst": lambda folder, documents: _written(folder / "a.jsonl.zst", _zstd(_jsonl(documents))),
    "tar": lambda folder, documents: _tar(folder / "a.tar", documents, "npy"),
    "tar gz": lambda folder, documents: _tar(folder / "a.tar.gz", documents, "json"),
}

NEED_DTYPE = ("raw", "olmo", "mds bytes")


@pytest.fixture(scope="session")
def write_as() -> Callable[..., Path]:
    """write_as(format, folder, documents): a corpus in one of WRITERS' formats; returns the path to open."""
    return lambda format, folder, documents: WRITERS[format](folder, documents)


@pytest.fixture(params=list(WRITERS))
def layout(request: pytest.FixtureRequest) -> str:
    """Each of WRITERS' formats in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def open_as() -> Callable[..., Corpus]:
    """open_as(format, path): opened with --dtype uint32 where the format needs one."""

    def opened(format: str, path: Path, **options: Any) -> Corpus:
        return open_corpus(path, dtype="uint32" if format in NEED_DTYPE else None, **options)

    return opened
