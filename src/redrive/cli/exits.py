"""Exit codes that scripts can trust, and errors as one clear line."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from redrive.cli.hints import placed

DONE = 0
NOTHING = 1  # nothing matched, or only a part of it could be done
WRONG = 2  # wrong usage or configuration
UNAVAILABLE = 3  # a backend does not answer
INTERRUPTED = 130
_UNREADABLE_BYTES = {chr(byte) for byte in range(0xDC80, 0xDD00)}  # as Python has bytes of arguments that are no UTF-8
UNREAD = 141  # who read our output went away, as SIGPIPE would have told us


class Stopped(click.ClickException):
    """Ends the command with that line on stderr and that exit code."""

    def __init__(self, message: str, code: int = WRONG) -> None:
        super().__init__(placed(message))
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance


@contextmanager
def saying_how_far(said: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C end the command with how far it came and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(f"interrupted: {said()}", INTERRUPTED) from None


def stopped_by(error: Exception, *, debug: bool) -> Exception:
    """The error to end the command with: one line for what we foresaw, the error itself for a bug."""
    if isinstance(error, UnicodeEncodeError) and error.object[error.start : error.end] in _UNREADABLE_BYTES:
        return Stopped(f"what was typed is no text: {ascii(error.object)[:100]} has bytes that are no UTF-8")
    code = _code(error)
    if code is None:
        return error
    if debug:
        traceback.print_exception(error)
    return Stopped(_line(error), code)


def _code(error: Exception) -> int | None:
    from redrive import errors  # when needed

    if isinstance(error, errors.UnknownGroup | errors.UnknownLetter | errors.UnknownReplay | errors.UnknownIncident):
        return NOTHING
    if isinstance(error, errors.NoWayBack | errors.NotReplayable):
        return NOTHING
    if isinstance(error, errors.Unavailable):
        return UNAVAILABLE
    return WRONG if isinstance(error, errors.RedriveError | OSError) else None


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fspath(error.filename)!s}: {error.strerror}"
    return str(error)


def unread() -> click.exceptions.Exit:
    """End a command whose reader went away: nothing more is written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return click.exceptions.Exit(UNREAD)
