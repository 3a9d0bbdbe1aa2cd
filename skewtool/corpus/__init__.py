"""Tokenized corpora as blocks of ids: `open_corpus`, one module per format, formats told by content."""

from skewtool.corpus.checks import CHECKS
from skewtool.corpus.corpus import Corpus
from skewtool.corpus.glance import Glance, glance
from skewtool.corpus.opening import FORMATS, open_corpus
from skewtool.corpus.source import ArraySource, Ids, Source
from skewtool.corpus.tokenizer import TokenizerFile

__all__ = [
    "CHECKS",
    "FORMATS",
    "ArraySource",
    "Corpus",
    "Glance",
    "Ids",
    "Source",
    "TokenizerFile",
    "glance",
    "open_corpus",
]
