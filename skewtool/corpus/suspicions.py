"""What makes stored ids doubtful before any is counted: zeros at the end, ids of another width, masks, files counted twice.

Each is a check with a name (`skewtool.corpus.checks`): an error unless it is allowed.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from skewtool.corpus.checks import COUNTED_TWICE, LABELS, WRONG_WIDTH, ZERO_TAIL, stop_unless_allowed
from skewtool.corpus.evidence import booleans, first_ids, halves_of_wider_ids, run_at_end
from skewtool.corpus.source import ArraySource, Source

__all__ = ["examine", "sort_out"]

_MANY_ZEROS = 1024  # at the end of a file: no text ends so
_ZEROS_OF_HALF = 128  # enough where they are half of the file
_SURE = 256  # values that make a suspicion of another width an error
_LABELS = re.compile(r"_(label|reward)(_(document|sentence))?\.bin$")
_UNSHUFFLED = re.compile(r"_unshuffled\.ds$")
_SHUFFLED = re.compile(r"(_(doc_|chunk_)?shuffled|(^|/)\d{3}_[^/]*(?<!_unshuffled))\.ds$")


def examine(source: Source, allow: Collection[str]) -> Source:
    """Looks at the first and the last ids of a stored array; returns the source without what is to be left out.

    Errors: CorpusError for ids that look like halves of wider ones, and for zeros at the end, unless allowed.
    """
    if not isinstance(source, ArraySource) or not source.num_tokens:
        return source
    return _without_zero_tail(_of_right_width(source, allow), allow)


def _of_right_width(source: ArraySource, allow: Collection[str]) -> ArraySource:
    head = first_ids(source)
    if not halves_of_wider_ids(head):
        return source
    wider = f"uint{16 * source.dtype.itemsize}"
    problem = (
        f"{source.path}: every second one of the first {head.size} ids is below 4, as if {source.dtype.name} were half "
        f"of the stored type: is it {wider}?"
    )
    if head.size >= _SURE:
        stop_unless_allowed(WRONG_WIDTH, problem, allow)
    return replace(source, notes=(*source.notes, f"{source.name}: {problem.split(': ', 1)[1]}"))


def _without_zero_tail(source: ArraySource, allow: Collection[str]) -> ArraySource:
    last, length = run_at_end(source)
    if last != 0 or length < (_ZEROS_OF_HALF if 2 * length >= source.num_tokens else _MANY_ZEROS):
        return source
    begin = source.num_tokens - length
    stop_unless_allowed(
        ZERO_TAIL,
        f"{source.path} ends with {length} zeros from token {begin} of {source.num_tokens} on, as a file that was "
        "allocated and never filled",
        allow,
    )
    return replace(
        source,
        num_tokens=begin,
        num_bytes=begin * source.dtype.itemsize,
        notes=(*source.notes, f"{source.name}: {length} zeros at the end were left out"),
        dropped=(*source.dropped, (ZERO_TAIL, length)),
    )


def sort_out(
    sources: Sequence[Source], allow: Collection[str]
) -> tuple[tuple[Source, ...], tuple[tuple[str, Source], ...]]:
    """The sources to count, and those to leave out with the check that says so.

    Errors: CorpusError when a file is there twice, when unshuffled files lie beside the shuffled ones made of them, and
    for files of labels, rewards or masks, unless allowed.
    """
    kept: list[Source] = []
    left_out: list[tuple[str, Source]] = []
    seen: dict[tuple[object, ...], Source] = {}
    shuffled = {source.path.parent for source in sources if _SHUFFLED.search(source.path.name)}
    for source in sources:
        file = (source.path.resolve(), source.name.rpartition(source.path.name)[2])  # and the member of an archive
        check, problem = "", ""
        if file in seen:
            check, problem = COUNTED_TWICE, f"is the same file as {seen[file].path}"
        elif _UNSHUFFLED.search(source.path.name) and source.path.parent in shuffled:
            check, problem = COUNTED_TWICE, "is left over: the shuffled files beside it hold its tokens"
        elif len(sources) > 1 and _LABELS.search(source.path.name):
            check, problem = LABELS, "holds labels or rewards, by its name, and no tokens"
        elif _is_mask(source):
            check, problem = LABELS, f"holds only zeros and ones, a byte each: a mask, no {source.dtype} ids"
        if check:
            stop_unless_allowed(check, f"{source.path} {problem}", allow)
            left_out.append((check, source))
        else:
            seen[file] = source
            kept.append(source)
    return tuple(kept), tuple(left_out)


def _is_mask(source: Source) -> bool:
    return isinstance(source, ArraySource) and source.format == "raw" and booleans(first_ids(source))
