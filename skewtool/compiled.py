"""`compiled`: numba's `njit` as all loops of this project use it.

The global interpreter lock is released, so threads run side by side. Machine code is kept on disk where numba finds a
writable place for it; where there is none (a read-only installation and home directory) it is compiled anew in each
process instead of failing, which is what `cache=True` alone would do.

fastmath stays off: results must be the same bytes on every machine.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

__all__ = ["compiled"]

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compiles `function` on its first call for each combination of argument types."""
    try:
        return cast(F, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # "cannot cache function: no locator available"
        return cast(F, numba.njit(nogil=True)(function))
