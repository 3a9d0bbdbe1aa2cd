"""`compiled`: numba's `njit` as all loops of this project use it.

The global interpreter lock is released, so threads run side by side. Machine code is kept on disk where numba finds a
writable place for it; where there is none (a read-only installation and home directory) it is compiled anew in each
process instead of failing, which is what `cache=True` alone would do.

numba takes kept code as valid while the file of the function itself is unchanged, though loops of other files may be
inlined in it. Here any change of any source of the package makes it compile again.

fastmath stays off: results must be the same bytes on every machine.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., object])


def _sources() -> str:
    """Changes whenever a source file of the package does."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        state = path.stat()
        digest.update(f"{path.name} {state.st_mtime_ns} {state.st_size}\n".encode())
    return digest.hexdigest()


_SOURCES = _sources()


def _stamped(function: Any) -> Any:
    """Makes kept machine code depend on all sources. The places are numba's own; where they moved, nothing is kept."""
    index: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if not hasattr(index, "_source_stamp"):
        return numba.njit(nogil=True)(function.py_func)
    index._source_stamp = (index._source_stamp, _SOURCES)
    return function


def compiled(function: F) -> F:
    """Compiles `function` on its first call for each combination of argument types."""
    try:
        return cast(F, _stamped(numba.njit(nogil=True, cache=True)(function)))
    except RuntimeError:  # "cannot cache function: no locator available"
        return cast(F, numba.njit(nogil=True)(function))
