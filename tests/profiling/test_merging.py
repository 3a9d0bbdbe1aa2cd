"""`merge`: exact, associative and commutative, down to the bytes of the file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import Corpus, TokenizerFile
from skewtool.errors import ProfileError
from skewtool.profiling import Profile, merge, profile

FILES = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=40), min_size=3, max_size=3)
SAME_NAME = st.booleans()


def profiles_of(
    files: list[list[int]], sample_size: int, same_name: bool, corpus_of: Callable[..., Corpus]
) -> list[Profile]:
    """With ids of 10 and 11 out of the vocabulary."""
    return [
        profile(corpus_of({"a.npy" if same_name else f"{number}.npy": ids}), vocab_size=10, windows=(2, 5),
                sample_size=sample_size, allow=("bad-ids",))
        for number, ids in enumerate(files)
    ]  # fmt: skip


@given(files=FILES, sample_size=st.integers(0, 8), same_name=SAME_NAME)
def test_any_order_and_grouping_gives_the_same_bytes(
    files: list[list[int]], sample_size: int, same_name: bool, corpus_of: Callable[..., Corpus],
    bytes_of: Callable[[Profile], bytes],
) -> None:  # fmt: skip
    a, b, c = profiles_of(files, sample_size, same_name, corpus_of)
    groupings = [[a, b, c], [c, b, a], [b, c, a], [merge([a, b]), c], [a, merge([b, c])], [merge([c, a]), merge([b])]]
    assert len({bytes_of(merge(profiles)) for profiles in groupings}) == 1


@given(files=FILES, sample_size=st.integers(0, 8))
def test_merged_profiles_are_the_profile_of_all_files(
    files: list[list[int]], sample_size: int, corpus_of: Callable[..., Corpus], bytes_of: Callable[[Profile], bytes]
) -> None:
    corpus = corpus_of({f"{number}.npy": ids for number, ids in enumerate(files)})
    whole = profile(corpus, vocab_size=10, windows=(2, 5), sample_size=sample_size, allow=("bad-ids",))
    merged = merge(profiles_of(files, sample_size, False, corpus_of))
    # Notes tell numbers of each run, and one run is not three; corpora have no order; everything else adds up.
    assert merged.timeline is None
    assert bytes_of(replace(merged, notes=())) == bytes_of(replace(whole, notes=(), timeline=None))


def test_one_profile_merges_to_itself(corpus_of: Callable[..., Corpus], bytes_of: Callable[[Profile], bytes]) -> None:
    made = profile(corpus_of({"b.npy": [1, 2], "a.npy": [3]}), windows=(2,))
    assert bytes_of(merge([made])) == bytes_of(made)


def test_counts_beyond_32_and_53_bits_stay_exact() -> None:
    def counted(number: int) -> Profile:
        return Profile(np.array([number, 1], np.int64), (), (), sample_size=0, seed=0, dropped={"bad-ids": number})

    merged = merge([counted(2**32 - 1), counted(2**32 + 5), counted(2**53 + 1)])
    assert merged.counts.tolist() == [2**33 + 4 + 2**53 + 1, 3]
    assert merged.dropped == {"bad-ids": 2**33 + 4 + 2**53 + 1}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"vocab_size": 11}, "vocabulary sizes: 10 and 11"),
        ({"windows": (3,)}, "window lengths"),
        ({"windows": ()}, "window lengths"),
        ({"sample_size": 5}, "sample sizes: 4 and 5"),
        ({"seed": 7}, "sample seeds: 0 and 7"),
    ],
)
def test_profiles_that_were_made_otherwise_are_refused(
    options: dict[str, Any], what: str, corpus_of: Callable[..., Corpus]
) -> None:
    alike: dict[str, Any] = {"vocab_size": 10, "windows": (2,), "sample_size": 4, "seed": 0}
    one, other = (profile(corpus_of({"a.npy": [1, 2]}), **kind) for kind in (alike, alike | options))
    with pytest.raises(ProfileError, match=f"different {what}"):
        merge([one, other])


def test_tokenizers_must_be_the_same_or_unknown(
    tmp_path: Path, corpus_of: Callable[..., Corpus], write_tokenizer: Callable[..., Path]
) -> None:
    corpus = corpus_of({"a.npy": [1, 2]})
    tokenizers = [TokenizerFile(write_tokenizer(tmp_path / f"{base}.json", base)) for base in (8, 9)]
    one, other = (profile(corpus, tokenizer=tokenizer, vocab_size=10) for tokenizer in tokenizers)
    unknown = profile(corpus, vocab_size=10)
    assert merge([unknown, one, unknown]).tokenizer == one.tokenizer
    with pytest.raises(ProfileError, match="different tokenizers"):
        merge([one, unknown, other])


def test_nothing_to_merge() -> None:
    with pytest.raises(ProfileError, match="nothing to merge"):
        merge([])
