"""What all commands share: the group that turns errors into one line, and printing.

Results go to stdout, progress and notes to stderr. Exit codes: 0 done, 1 the input is bad or a check failed, 2 the
command was called wrongly.
"""

import json
import warnings
from typing import Any

import click

from skewtool.errors import SkewtoolError

__all__ = ["ErrorGroup", "note", "print_json", "row_range"]


class ErrorGroup(click.Group):
    """Turns the errors an input can cause into one line and exit code 1, and warnings into notes."""

    def invoke(self, ctx: click.Context) -> Any:
        warnings.showwarning = lambda message, *_, **__: note(str(message))
        try:
            return super().invoke(ctx)
        except SkewtoolError as error:
            click.echo(f"skewtool: error: {error}", err=True)
        except MemoryError as error:
            click.echo(f"skewtool: error: not enough memory: {error}", err=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            click.echo(f"skewtool: error: {error.filename or ''}: {error.strerror or error}", err=True)
        return ctx.exit(1)


def note(text: str) -> None:
    """One note on stderr."""
    click.echo(f"note: {text}", err=True)


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, allow_nan=False))


def row_range(rows: Any) -> list[int]:
    """Fewest and most rows of a shard."""
    return [int(rows.min()), int(rows.max())]
