"""The command line: each command parses, loads, makes one library call, writes and prints.

Modules are named for what their commands do; `main` gathers them.
"""

import click

import skewtool
from skewtool.cli.benchmarking import bench
from skewtool.cli.costing import cost
from skewtool.cli.group import ErrorGroup
from skewtool.cli.inspecting import inspect, verify
from skewtool.cli.judging import report, skew
from skewtool.cli.partitioning import partition
from skewtool.cli.planning import plan
from skewtool.cli.profiling import merge, profile
from skewtool.cli.rebalancing import rebalance

__all__ = ["main"]


@click.group(cls=ErrorGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(skewtool.__version__, prog_name="skewtool")
def main() -> None:
    """Measure and remove the load skew of vocabulary-sharded embeddings and LM heads.

    Read a corpus and profile it, compute a shard map, judge it, use it.
    """


for command in (profile, merge, inspect, partition, plan, cost, rebalance, verify, skew, bench, report):
    main.add_command(command)
