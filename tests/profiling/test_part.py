"""Parts: any split, any order, any engine gives the bytes of a plain run; and what does not belong together is refused."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import skewtool
from skewtool.corpus import Corpus, TokenizerFile, open_corpus
from skewtool.errors import CorpusError, FileFormatError, ProfileError
from skewtool.profiling import Part, Profile, merge_parts, profile, profile_part
from skewtool.profiling.part import add_parts

FILES = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=60), min_size=1, max_size=4)


def parts_of(corpus: Corpus, count: int, **options: Any) -> list[Part]:
    return [profile_part(corpus, task_index=index, task_count=count, **options) for index in range(count)]


def written(part: Part, folder: Path) -> Part:
    """The part as it comes back from its file."""
    part.save(folder / "part.safetensors")
    return Part.load(folder / "part.safetensors")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=FILES, windows=st.sampled_from([(), (2,), (2, 5), (4, 6)]), vocab_size=st.sampled_from([None, 12, 10]),
    sample_size=st.integers(0, 8), count=st.sampled_from([1, 2, 3, 5, 20]), order=st.randoms(use_true_random=False),
)  # fmt: skip
def test_any_split_and_order_gives_the_bytes_of_a_plain_run(
    files: list[list[int]], windows: tuple[int, ...], vocab_size: int | None, sample_size: int, count: int,
    order: random.Random, tmp_path: Path, corpus_of: Callable[..., Corpus], bytes_of: Callable[[Profile], bytes],
) -> None:  # fmt: skip
    """Also with ids outside the vocabulary, without a vocabulary, and with more tasks than windows."""
    corpus = corpus_of({f"{number}.npy": ids for number, ids in enumerate(files)})
    options: dict[str, Any] = {
        "vocab_size": vocab_size, "windows": windows, "sample_size": sample_size, "allow": ("bad-ids",)
    }  # fmt: skip
    parts = [written(part, tmp_path) for part in parts_of(corpus, count, workers=1 + count % 2, **options)]
    again = parts + order.choices(parts, k=2)
    order.shuffle(again)
    plain = bytes_of(profile(corpus, **options))
    assert bytes_of(merge_parts(again)) == plain
    order.shuffle(parts)
    assert bytes_of(merge_parts([reduce(lambda total, part: add_parts([total, part]), parts)])) == plain


@pytest.fixture
def mixed(tmp_path: Path) -> Corpus:
    """Files that can be cut, one between them whose size only reading tells, and two without tokens."""
    rng = np.random.default_rng(5)
    (tmp_path / "b.jsonl").write_text("".join(f'{{"input_ids": {rng.integers(0, 90, 50).tolist()}}}\n' for _ in range(20)))
    for name, size in (("a.npy", 900), ("c.npy", 70)):
        np.save(tmp_path / name, rng.integers(0, 90, size).astype(np.uint16))
    opened = open_corpus([tmp_path / name for name in ("a.npy", "b.jsonl", "c.npy")])
    empty = replace(opened.sources[0], name="empty.npy", num_tokens=0, num_bytes=0)
    return replace(opened, sources=(empty, *opened.sources, replace(empty, name="last.npy")))


@pytest.mark.parametrize("count", [1, 2, 7, 20])
def test_sources_of_unknown_size_are_taken_whole(
    count: int, mixed: Corpus, bytes_of: Callable[[Profile], bytes]
) -> None:
    parts = parts_of(mixed, count, windows=(8,), sample_size=20)
    assert sum(any(source.name == "b.jsonl" for source in part.tally.sources) for part in parts) == 1
    assert bytes_of(merge_parts(parts[::-1])) == bytes_of(profile(mixed, windows=(8,), sample_size=20))


def test_saving_again_gives_the_same_bytes(mixed: Corpus, tmp_path: Path) -> None:
    part = profile_part(mixed, task_index=1, task_count=3, vocab_size=90, windows=(8, 12))
    part.save(tmp_path / "one")
    loaded = Part.load(tmp_path / "one")
    loaded.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (loaded.setup, loaded.ranges, loaded.tally.sources) == (part.setup, part.ranges, part.tally.sources)


def test_a_part_is_no_profile_and_a_profile_no_part(mixed: Corpus, tmp_path: Path) -> None:
    part = profile_part(mixed, windows=(8,))
    part.save(tmp_path / "part")
    merge_parts([part]).save(tmp_path / "whole")
    with pytest.raises(FileFormatError, match="is a skewtool profile-part file, expected a profile file"):
        Profile.load(tmp_path / "part")
    with pytest.raises(FileFormatError, match="is a skewtool profile file, expected a profile-part file"):
        Part.load(tmp_path / "whole")


@pytest.fixture
def corpus(corpus_of: Callable[..., Corpus]) -> Corpus:
    return corpus_of({"a.npy": np.arange(100) % 7, "b.npy": np.arange(60) % 5})


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_missing_part_is_a_gap(missing: int, corpus: Corpus) -> None:
    parts = parts_of(corpus, 4, windows=(8,))
    del parts[missing]
    with pytest.raises(ProfileError, match="leave a gap between source" if missing < 3 else "the parts end at source"):
        merge_parts(parts)


def test_parts_of_different_splits_overlap(corpus: Corpus) -> None:
    with pytest.raises(ProfileError, match="the parts overlap between source 0, token 56 and source 0, token 80"):
        merge_parts([*parts_of(corpus, 2, windows=(8,)), parts_of(corpus, 3, windows=(8,))[1]])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"vocab_size": 11}, "vocabulary sizes: 10 and 11"),
        ({"vocab_size": None}, "vocabulary sizes: 10 and none"),
        ({"windows": (3,)}, r"window lengths: \[2\] and \[3\]"),
        ({"sample_size": 5}, "sample sizes: 4 and 5"),
        ({"seed": 7}, "sample seeds: 0 and 7"),
        ({"allow": ("bad-ids",)}, r"allowed checks: \[\] and \['bad-ids'\]"),
    ],
)
def test_parts_with_other_settings_are_refused(options: dict[str, Any], what: str, corpus: Corpus) -> None:
    alike: dict[str, Any] = {"vocab_size": 10, "windows": (2,), "sample_size": 4, "seed": 0}
    with pytest.raises(ProfileError, match=f"cannot merge parts of different {what}"):
        merge_parts([parts_of(corpus, 2, **alike)[0], parts_of(corpus, 2, **(alike | options))[1]])


def test_parts_of_other_corpora_tokenizers_and_versions_are_refused(
    corpus: Corpus, tmp_path: Path, corpus_of: Callable[..., Corpus], write_tokenizer: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    first = parts_of(corpus, 2, vocab_size=10)[0]
    longer = corpus_of({"a.npy": np.arange(100) % 7, "b.npy": np.arange(61) % 5})
    with pytest.raises(ProfileError, match="different corpora"):
        merge_parts([first, parts_of(longer, 2, vocab_size=10)[1]])
    tokenizer = TokenizerFile(write_tokenizer(tmp_path / "t.json", 10))
    with pytest.raises(ProfileError, match="different tokenizers"):
        merge_parts([first, parts_of(corpus, 2, tokenizer=tokenizer)[1]])
    monkeypatch.setattr(skewtool, "__version__", "9.9")
    with pytest.raises(ProfileError, match=r"versions of skewtool: .* and 9\.9"):
        merge_parts([first, parts_of(corpus, 2, vocab_size=10)[1]])


def test_the_same_range_with_other_counts_is_refused(corpus: Corpus, corpus_of: Callable[..., Corpus]) -> None:
    changed = corpus_of({"a.npy": np.arange(100) % 6, "b.npy": np.arange(60) % 5})
    with pytest.raises(ProfileError, match="hold different counts: the corpus has changed"):
        merge_parts([*parts_of(corpus, 2, windows=(8,)), parts_of(changed, 2, windows=(8,))[0]])


def test_nothing_to_merge_and_nothing_counted(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="nothing to merge"):
        merge_parts([])
    (tmp_path / "a.jsonl").write_text('{"input_ids": []}\n')
    with pytest.raises(CorpusError, match=r"holds no tokens \(a.jsonl\)"):
        merge_parts([profile_part(open_corpus(tmp_path / "a.jsonl"))])


def test_a_corpus_may_lie_elsewhere_on_another_machine(
    corpus: Corpus, corpus_of: Callable[..., Corpus], bytes_of: Callable[[Profile], bytes]
) -> None:
    copy = corpus_of({"a.npy": np.arange(100) % 7, "b.npy": np.arange(60) % 5})
    merged = merge_parts([parts_of(corpus, 2)[0], parts_of(copy, 2)[1]])
    assert bytes_of(merged) == bytes_of(profile(corpus))


@pytest.mark.parametrize("missing", ["setup", "ranges", "num_windows", "sources", "blocks"])
def test_missing_parts_of_a_file_are_named(missing: str, corpus: Corpus, tmp_path: Path) -> None:
    from skewtool.profiling.part_file import KIND, VERSION
    from skewtool.storage import load_tensor_file, save_tensor_file

    profile_part(corpus).save(tmp_path / "part")
    header, tensors = load_tensor_file(tmp_path / "part", KIND, VERSION)
    kept = {name: value for name, value in header.items() if name not in ("format", "version", "digest", missing)}
    save_tensor_file(tmp_path / "part", KIND, VERSION, kept, tensors)
    with pytest.raises(FileFormatError, match=f"not a complete part of a profile: .*{missing}"):
        Part.load(tmp_path / "part")


def test_dropped_ids_do_not_depend_on_who_met_them(corpus_of: Callable[..., Corpus]) -> None:
    """Two files of one name have equal keys: the sample is chosen before the dropped id is taken out."""
    files = [corpus_of({"same.npy": ids}).files[0] for ids in ([9, 1, 2, 3], [0, 9, 9, 3])]
    options: dict[str, Any] = {"vocab_size": 5, "windows": (4,), "sample_size": 1, "allow": ("bad-ids",)}
    corpus = open_corpus(files)
    plain = profile(corpus, **options)
    for workers in (1, 2):
        merged = merge_parts(parts_of(corpus, 2, workers=workers, **options))
        assert merged.windows[0].sample.ids.tolist() == plain.windows[0].sample.ids.tolist()
        assert merged.dropped == {"bad-ids": 3}
