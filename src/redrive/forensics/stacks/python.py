"""Reads tracebacks of Python that came as a text."""

from __future__ import annotations

from redrive.forensics.stacks.frames import Runtime, python_frame, runtime_of
from redrive.forensics.stacks.headers import Builder, header_of, indent
from redrive.forensics.stacks.model import Raised, Stack

TITLE = "Traceback (most recent call last):"
DIRECT = "The above exception was the direct cause of the following exception:"
IMPLICIT = "During handling of the above exception, another exception occurred:"


def read_python(lines: list[str]) -> Stack | None:
    """The last exception and what it was raised from. What was only being handled then is not why."""
    chain: list[Raised] = []
    current = Builder("", "")
    for line in lines:
        text = _plain(line)
        if text.strip() in (DIRECT, IMPLICIT, TITLE):
            _end(chain, current)
            current = Builder("", "")
            if text.strip() == IMPLICIT:
                chain.clear()
        elif runtime_of(text) is Runtime.PYTHON:
            current.frames.append(python_frame(text))
        elif indent(text) == 0 and text.strip():
            _say(current, text)
    _end(chain, current)
    return Stack(tuple(reversed(chain))) if chain else None


def _say(current: Builder, text: str) -> None:
    if current.type:
        current.say(text)
    else:
        current.type, message = header_of(text)
        current.say(message)


def _end(chain: list[Raised], current: Builder) -> None:
    """Python prints the innermost frame last."""
    if current.type or current.frames:
        chain.append(Raised(current.type, current.message, tuple(reversed(current.done().frames))))


def _plain(line: str) -> str:
    """The line without the margin that an exception group has."""
    text = line.lstrip()
    return text[2:] if text.startswith("| ") else line
