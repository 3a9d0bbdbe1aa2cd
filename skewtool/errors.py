"""What a user can meet when the input is not what was promised.

Every message says what was expected, what was found, where, and the way out, in one line. The command line prints the
message and exits with code 1; library users catch `SkewtoolError` (a `ValueError`) or one of its children.
"""

__all__ = [
    "BenchError",
    "CorpusError",
    "DecodingError",
    "FileFormatError",
    "LabelError",
    "MapError",
    "ProfileError",
    "RouteError",
    "SkewtoolError",
]


class SkewtoolError(ValueError):
    """Base of all errors that an input can cause."""


class CorpusError(SkewtoolError):
    """A tokenized corpus that cannot be read, or whose contents contradict what was said of it."""


class ProfileError(SkewtoolError):
    """Profiles that cannot be built, merged, or used for what was asked."""


class MapError(SkewtoolError):
    """A shard map that breaks an invariant, or a map that cannot be made from the given input."""


class FileFormatError(SkewtoolError):
    """A profile or map file that is damaged, of another kind, or of an unknown version; a file that cannot be written."""


class RouteError(SkewtoolError):
    """Ids that cannot be looked up, or a map that does not fit the process group; raised on every rank alike."""


class LabelError(SkewtoolError):
    """Labels, logits or options of a loss that do not go together; raised on every rank alike."""


class BenchError(SkewtoolError):
    """A bench that cannot run as asked, or a rank of it that failed."""


class DecodingError(SkewtoolError):
    """Logits or settings from which no token can be chosen; raised before any collective."""
