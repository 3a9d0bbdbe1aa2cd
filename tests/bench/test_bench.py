"""A bench from corpus to table: every layout runs, moves the bytes that were predicted, and leaves nothing behind."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

import skewtool
from skewtool.bench import BenchOptions, Host, run_bench, why_no_wire, wired_hosts
from skewtool.bench.job import read_batches
from skewtool.bench.launch import local_hosts, run_ranks
from skewtool.bench.layouts import LAYOUTS
from skewtool.bench.prediction import requests_of
from skewtool.bench.run import REMAPPED, REMAPPED_WITH_COPIES
from skewtool.cli import main
from skewtool.errors import BenchError
from skewtool.sharding import ShardMap

VOCAB, HIDDEN, RANKS, TOKENS = 499, 251, 2, 211


@pytest.fixture(scope="module")
def corpus_file(tmp_path_factory: pytest.TempPathFactory, zipf_tokens: Callable[..., Any]) -> Path:
    path: Path = tmp_path_factory.mktemp("corpus") / "ids.npy"
    np.save(path, zipf_tokens(40 * RANKS * TOKENS, VOCAB).astype(np.uint16))
    return path


@pytest.fixture(scope="module")
def result(corpus_file: Path) -> dict[str, Any]:
    options = BenchOptions(shards=RANKS, hidden=HIDDEN, tokens_per_rank=TOKENS, head_tokens=11, steps=2)
    found = run_bench(skewtool.open_corpus(corpus_file), options, vocab_size=VOCAB)
    assert found is not None
    content: dict[str, Any] = json.loads(found.to_json())
    assert "NO" not in found.to_text()
    return content


def test_all_layouts_run(result: dict[str, Any]) -> None:
    assert [each["layout"] for each in result["layouts"]] == [*LAYOUTS, REMAPPED, REMAPPED_WITH_COPIES]
    head = {name: result[name] for name in ("backend", "shards", "tokens_per_rank", "hidden")}
    assert head == {"backend": "gloo", "shards": RANKS, "tokens_per_rank": TOKENS, "hidden": HIDDEN}
    for each in result["layouts"]:
        for name in ("step_seconds", "forward_seconds", "backward_seconds"):
            assert 0 < each[name]["p50"] <= each[name]["p99"]


def test_every_byte_was_predicted(result: dict[str, Any]) -> None:
    for each in result["layouts"]:
        assert each["bytes_as_predicted"], each["layout"]
        assert each["bytes_sent_per_rank"] == each["predicted_bytes_sent_per_rank"]


def test_peak_memory_is_within_a_tenth(result: dict[str, Any]) -> None:
    """Integers, some 200 bytes per token, are not counted; they are little beside rows of usual size."""
    for each in result["layouts"]:
        for phase, predicted in (each["predicted_peak_bytes"] or {}).items():
            assert each["peak_bytes"][phase] == pytest.approx(predicted, rel=0.1, abs=100), each["layout"]


def test_remapped_rows_are_even(result: dict[str, Any]) -> None:
    served = {each["layout"]: each["rows_served_per_rank"] for each in result["layouts"]}
    assert served["contiguous routed raw"]["max"] > 1.5 * served["contiguous routed raw"]["mean"]
    assert served[REMAPPED]["max"] < 1.2 * served[REMAPPED]["mean"]
    distinct = {served[name]["mean"] for name in (REMAPPED, "contiguous routed distinct", "strided routed distinct")}
    assert len(distinct) == 1


def test_requests_are_counted_by_hand() -> None:
    """Ids 0 and 1 live on shard 0, 2 and 3 on shard 1; id 3 also on shard 0, so it is read in place by both."""
    shard_map = ShardMap(np.array([[0, 1, 3], [2, 3, -1]]), 2, 4, 4)
    requests, in_place = requests_of(np.array([[0, 0, 2], [3, 3, 1]]), shard_map)
    assert (requests.tolist(), in_place.tolist()) == ([[1, 1], [1, 0]], [0, 1])
    requests, in_place = requests_of(np.array([[0, 0, 2], [3, 3, 1]]), shard_map, distinct=False)
    assert (requests.tolist(), in_place.tolist()) == ([[2, 1], [1, 0]], [0, 2])


def test_batches_are_dealt_rank_by_rank(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(30, dtype=np.uint16))
    corpus = skewtool.open_corpus(tmp_path / "ids.npy")
    assert read_batches(corpus, 9, 2, 5).tolist()[1] == [[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
    assert len(read_batches(corpus, 9, 2, 5)) == 3
    with pytest.raises(BenchError, match="needs 40 tokens, the corpus has 30"):
        read_batches(corpus, 1, 4, 10)


def test_what_cannot_run_is_refused(corpus_file: Path) -> None:
    with pytest.raises(BenchError, match="no layout 'x'"):
        BenchOptions(layouts=("x",))
    with pytest.raises(BenchError, match="3 shards, but 2 ranks"):
        run_bench(skewtool.open_corpus(corpus_file), BenchOptions(shards=2), {"m": ShardMap.contiguous(VOCAB, 3)})


def test_a_rank_that_fails_is_told_and_none_is_left(tmp_path: Path) -> None:
    hosts = [*local_hosts(1), Host(["sh", "-c", "echo went wrong; exit 3"])]
    with pytest.raises(BenchError, match="rank 1 of the bench failed: went wrong"):
        run_ranks(tmp_path, hosts)
    left = subprocess.run(["pgrep", "-f", f"skewtool.bench.rank {tmp_path}"], capture_output=True, check=False)
    assert left.stdout == b""


REACHES_ITSELF = """
import socket
server = socket.create_server(("10.77.0.2", 29500))
socket.create_connection(("10.77.0.2", 29500), timeout=5)
"""


def _namespaces() -> list[str]:
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("skewtool")]


def test_a_wire_carries_what_it_should_and_goes_away() -> None:
    reason = why_no_wire()
    if reason is not None:
        pytest.skip(reason)
    before = _namespaces()

    def interrupted() -> None:
        with wired_hosts(2, "100mbit") as hosts:
            assert len(_namespaces()) == len(before) + 3
            shown = subprocess.run([*hosts[0].command, "tc", "qdisc"], capture_output=True, text=True, check=True)
            assert "tbf" in shown.stdout
            assert "100Mbit" in shown.stdout
            subprocess.run([*hosts[1].command, "python3", "-c", REACHES_ITSELF], check=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert _namespaces() == before
    with pytest.raises(BenchError, match="tc qdisc add"), wired_hosts(1, "fast"):
        pass
    assert _namespaces() == before


def test_the_command_prints_draws_and_calibrates(corpus_file: Path, tmp_path: Path) -> None:
    run = CliRunner()
    arguments = ["bench", "--corpus", str(corpus_file), "--shards", "2", "--hidden", "8", "--tokens-per-rank", "100",
                 "--steps", "1", "--vocab-size", str(VOCAB), "--layouts", "hidden kept"]  # fmt: skip
    done = run.invoke(main, [*arguments, "--plot", str(tmp_path / "bars.png"), "--json"])
    assert done.exit_code == 0, done.output
    assert [each["layout"] for each in json.loads(done.stdout)["layouts"]] == ["hidden kept", REMAPPED, REMAPPED_WITH_COPIES]
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    done = run.invoke(main, ["bench", "--shards", "2", "--calibrate", str(tmp_path / "wire.json")])
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "wire.json").read_text())
    assert found["backend"] == "gloo"
    assert found["latency_seconds"] > 0
    assert found["bandwidth_bytes_per_second"] > 0
    assert run.invoke(main, ["bench"]).exit_code == 2
