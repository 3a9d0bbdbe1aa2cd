"""Corpora from lists of ids, and the naive twin of window counting."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

from skewtool.corpus import Corpus, open_corpus
from skewtool.profiling import Profile

settings.register_profile("skewtool", deadline=None, max_examples=60)
settings.load_profile("skewtool")

NaiveWindow = tuple[int, list[int], list[int]]
Naive = tuple[list[int], list[int], int, list[NaiveWindow]]


@pytest.fixture(scope="session")
def corpus_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Corpus]:
    """corpus_of({"a.npy": [1, 2]}, dtype="uint16"): one .npy file for each name, in a new directory."""

    def make(sources: Mapping[str, npt.ArrayLike], dtype: str = "uint16") -> Corpus:
        folder = tmp_path_factory.mktemp("corpus")
        for name, ids in sources.items():
            np.save(folder / name, np.asarray(ids, np.int64).astype(dtype))
        return open_corpus(folder)

    return make


@pytest.fixture(scope="session")
def bytes_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Profile], bytes]:
    """The bytes of a profile's file: equal bytes are equal profiles."""
    path = tmp_path_factory.mktemp("profile") / "profile.safetensors"

    def save(profile: Profile) -> bytes:
        profile.save(path)
        return path.read_bytes()

    return save


@pytest.fixture(scope="session")
def write_tokenizer() -> Callable[..., Path]:
    """write_tokenizer(path, base, added=0): a tokenizer.json with `base` words w0, w1, … and added tokens after them."""

    def write(path: Path, base: int, added: int = 0) -> Path:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        content = {
            "version": "1.0",
            "added_tokens": [{"id": base + i, "content": f"<{i}>", "special": True, **flags} for i in range(added)],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(base)}, "unk_token": "w0"},
        }
        path.write_text(json.dumps(content), "utf-8")
        return path

    return write


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    return value ^ (value >> 31)


@pytest.fixture(scope="session")
def naive_windows() -> Callable[..., Naive]:
    """Twin of window counting in plain Python.

    naive_windows([(source key, ids), …], vocab_size, length, sample_size): counts, presence, number of windows, and the
    sample as (key, ids in the order of first occurrence, counts).
    """

    def count(streams: Iterable[tuple[int, Sequence[int]]], vocab_size: int, length: int, sample_size: int) -> Naive:
        counts, presence, num_windows = [0] * vocab_size, [0] * vocab_size, 0
        whole: list[NaiveWindow] = []
        for source_key, ids in streams:
            for start in range(0, len(ids), length):
                window: dict[int, int] = {}
                for token in ids[start : start + length]:
                    window[token] = window.get(token, 0) + 1
                    counts[token] += 1
                for token in window:
                    presence[token] += 1
                num_windows += 1
                if start + length <= len(ids):
                    key = _mix((source_key + start * 0x9E3779B97F4A7C15) % 2**64)
                    whole.append((key, list(window), list(window.values())))
        return counts, presence, num_windows, sorted(whole)[:sample_size]

    return count


@pytest.fixture(scope="session")
def naive_key() -> Callable[..., int]:
    """naive_key(name, seed=0): the 64-bit key of a source."""

    def key(name: str, seed: int = 0) -> int:
        digest = blake2b(name.encode(), digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest()
        return int.from_bytes(digest, "little")

    return key


@pytest.fixture(scope="session")
def as_lists() -> Callable[[Iterable[tuple[int, Any, Any]]], list[NaiveWindow]]:
    """Windows of arrays as windows of lists, to compare with `naive_windows`."""
    return lambda windows: [(int(key), ids.tolist(), counts.tolist()) for key, ids, counts in windows]
