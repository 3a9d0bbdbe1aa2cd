"""Profiles of tokenized corpora: counting, windows, the Profile and its file, merging."""

from skewtool.profiling.checks import ALLOWABLE
from skewtool.profiling.local import DEFAULT_WINDOWS, profile
from skewtool.profiling.merging import merge
from skewtool.profiling.profile import Profile, SourceRow, TokenizerSizes, WindowSample, WindowStatistics
from skewtool.profiling.windows import WindowContent, corpus_windows

__all__ = [
    "ALLOWABLE",
    "DEFAULT_WINDOWS",
    "Profile",
    "SourceRow",
    "TokenizerSizes",
    "WindowContent",
    "WindowSample",
    "WindowStatistics",
    "corpus_windows",
    "merge",
    "profile",
]
