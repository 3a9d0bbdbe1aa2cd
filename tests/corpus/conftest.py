"""Writers of small corpora in each format, and a tiny tokenizer.

Fixtures are functions that take the path to write, so that property tests (which run many times per fixture) can use
them with `new_dir`.
"""

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from skewtool.corpus import Corpus

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
