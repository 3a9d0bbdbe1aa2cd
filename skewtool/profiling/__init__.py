"""Profiles of tokenized corpora: counting, windows, the Profile and its file, merging."""

from skewtool.profiling.checkpoints import Checkpoints
from skewtool.profiling.checks import ALLOWABLE
from skewtool.profiling.local import profile, profile_part
from skewtool.profiling.merging import merge
from skewtool.profiling.part import Part, merge_parts
from skewtool.profiling.profile import Profile, SourceRow, TokenizerSizes, WindowSample, WindowStatistics
from skewtool.profiling.ray_engine import profile_on_ray
from skewtool.profiling.setup import DEFAULT_WINDOWS
from skewtool.profiling.timeline import Timeline
from skewtool.profiling.windows import WindowContent, corpus_windows

__all__ = [
    "ALLOWABLE",
    "DEFAULT_WINDOWS",
    "Checkpoints",
    "Part",
    "Profile",
    "SourceRow",
    "Timeline",
    "TokenizerSizes",
    "WindowContent",
    "WindowSample",
    "WindowStatistics",
    "corpus_windows",
    "merge",
    "merge_parts",
    "profile",
    "profile_on_ray",
    "profile_part",
]
