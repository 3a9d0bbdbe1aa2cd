"""`budget_rows`: a number of rows that a user gives as it is or as a percentage."""

import math

from skewtool.errors import MapError

__all__ = ["budget_rows"]


def budget_rows(budget: int | str, whole: int, name: str) -> int:
    """Rows from 12, "12" or "1.5%" of `whole`, rounded down. Errors: MapError, calling it `name`, for anything else."""
    text = str(budget).strip()
    try:
        if text.endswith("%"):
            rows = math.floor(float(text[:-1]) / 100 * whole + 1e-9)
        else:
            rows = int(text)
    except (ValueError, OverflowError):
        raise MapError(f"{name} must be a number of rows or a percentage such as 10%, got {budget!r}") from None
    if rows < 0:
        raise MapError(f"{name} must not be negative, got {budget!r}")
    return rows
