"""skewtool: measure and remove the load skew of vocabulary-sharded embeddings and LM heads.

Read a corpus, profile it, compute a map, judge it, use it:

>>> import skewtool
>>> corpus = skewtool.open_corpus("train.bin", dtype="uint16")     # doctest: +SKIP
>>> profile = skewtool.profile(corpus, vocab_size=50257)           # doctest: +SKIP
>>> shard_map = skewtool.partition(profile, num_shards=8)          # doctest: +SKIP
>>> report = skewtool.measure_skew(profile, {"balanced": shard_map})  # doctest: +SKIP

Names are loaded when they are first used, so that the command line starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skewtool.corpus import Corpus, open_corpus
    from skewtool.errors import SkewtoolError
    from skewtool.profiling import Profile, merge, profile
    from skewtool.sharding import ShardMap, partition
    from skewtool.skew import SkewReport, measure_skew

__version__ = "0.1.0"

__all__ = [
    "Corpus",
    "Profile",
    "ShardMap",
    "SkewReport",
    "SkewtoolError",
    "__version__",
    "measure_skew",
    "merge",
    "open_corpus",
    "partition",
    "profile",
]

_HOME_OF = {
    "Corpus": "skewtool.corpus",
    "open_corpus": "skewtool.corpus",
    "SkewtoolError": "skewtool.errors",
    "Profile": "skewtool.profiling",
    "merge": "skewtool.profiling",
    "profile": "skewtool.profiling",
    "ShardMap": "skewtool.sharding",
    "partition": "skewtool.sharding",
    "SkewReport": "skewtool.skew",
    "measure_skew": "skewtool.skew",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'skewtool' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
