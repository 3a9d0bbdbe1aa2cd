"""The bench of all layouts over a real wire: P hosts in network namespaces, joined by links of a chosen rate.

Needs root and iproute2 for the namespaces; without them it says so and runs over loopback, unlimited. Maps are made from
the first 80 % of the corpus, batches are from the last 20 %. Beside skewtool's layouts run torch's DTensor and, where it
is installed, megatron-core, for the layouts that they have, in the same run, on the same batches, with the same table.
"""

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

import skewtool
from skewtool.bench import BenchOptions, available_peers, local_hosts, run_bench, why_no_wire, wired_hosts
from skewtool.bench.layouts import HEADS, LAYOUTS


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", default="400mbit", help="of each link, both ways, as tc writes it")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--tokens-per-rank", type=int, default=4096)
    parser.add_argument("--corpus", type=Path, action="append", required=True)
    parser.add_argument("--dtype", help="of header-less ids")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--element", default="float32", help="type of the tables")
    parser.add_argument("--extra-rows", default="10%")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--heads", action="store_true", help="also the LM heads, whose logits take long over a wire")
    parser.add_argument("--head-tokens", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def stop(signum: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)  # a second one must not stop the removal of namespaces
    sys.exit(128 + signum)


def main() -> None:
    arguments = parsed()
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, stop)
    layouts = [name for name in LAYOUTS if arguments.heads or name not in HEADS]
    options = BenchOptions(
        shards=arguments.hosts, hidden=arguments.hidden, tokens_per_rank=arguments.tokens_per_rank,
        head_tokens=arguments.head_tokens, dtype=arguments.element, steps=arguments.steps,
        extra_rows=arguments.extra_rows, layouts=(*layouts, *available_peers()),
    )  # fmt: skip
    corpus = skewtool.open_corpus(arguments.corpus, dtype=arguments.dtype)
    reason = why_no_wire()
    if reason is not None:
        print(f"no wire: {reason}; running over loopback, where --rate means nothing", file=sys.stderr)
        result = run_bench(corpus, options, vocab_size=arguments.vocab_size, hosts=local_hosts(arguments.hosts))
    else:
        with wired_hosts(arguments.hosts, arguments.rate) as hosts:
            result = run_bench(corpus, options, vocab_size=arguments.vocab_size, hosts=hosts)
    assert result is not None
    result = result.with_wire(None if reason else arguments.rate)
    print(result.to_json() if arguments.json else result.to_text())


if __name__ == "__main__":
    try:
        main()
    except skewtool.SkewtoolError as error:
        sys.exit(f"wire_bench: error: {error}")
