"""Makes a real tokenized corpus from what every Python has: the source and documentation of its standard library.

Trains a byte-level BPE tokenizer of 16,384 tokens on it and writes, into the directory given, tokenizer.json and two
Megatron pairs: train (80 % of the files) and heldout (20 %), each document followed by <|endoftext|>.
"""

import random
import struct
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 16_384
END = "<|endoftext|>"
LEAST_CHARACTERS = 200


def standard_library() -> list[str]:
    """The text of each Python file of the standard library, in a seeded random order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts or "dist-packages" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        if len(text) >= LEAST_CHARACTERS:
            texts.append(text)
    random.Random(0).shuffle(texts)
    return texts


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE tokenizer, ids in order of merges, which is roughly the order of frequency."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=sys.stderr.isatty(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_megatron(prefix: Path, documents: list[np.ndarray]) -> int:
    """Writes PREFIX.bin and PREFIX.idx of uint16 ids, one sequence a document; returns the number of tokens."""
    lengths = np.array([document.size for document in documents], np.int32)
    offsets = (np.cumsum(lengths, dtype=np.int64) - lengths) * 2
    prefix.with_suffix(".bin").write_bytes(np.concatenate(documents).astype("<u2").tobytes())
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, lengths.size, lengths.size + 1)
    starts = np.arange(lengths.size + 1, dtype=np.int64)
    prefix.with_suffix(".idx").write_bytes(header + lengths.tobytes() + offsets.tobytes() + starts.tobytes())
    return int(lengths.sum())


def main() -> None:
    out = Path(sys.argv[1])
    start = time.perf_counter()
    texts = standard_library()
    characters = sum(map(len, texts))
    print(f"{len(texts):,} files of the standard library, {characters:,} characters")
    tokenizer = train_tokenizer(texts)
    tokenizer.save(str(out / "tokenizer.json"))
    end = tokenizer.token_to_id(END)
    documents = [np.array([*encoding.ids, end]) for encoding in tokenizer.encode_batch_fast(texts)]
    cut = len(documents) * 8 // 10
    for name, part in (("train", documents[:cut]), ("heldout", documents[cut:])):
        print(f"{out / name}.idx/.bin: {write_megatron(out / name, part):,} tokens")
    print(
        f"tokenizer of {tokenizer.get_vocab_size():,} tokens: {out / 'tokenizer.json'}; {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
