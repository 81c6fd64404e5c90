"""Which lines of a trace are frames, and whose: a page shows the user's own code, and folds that of libraries."""

from __future__ import annotations

import re
from itertools import pairwise

from msgspec import Struct

from redrive.forensics.stacks.frames import (
    Runtime,
    dotnet_frame,
    go_frame,
    java_frame,
    node_frame,
    python_frame,
    runtime_of,
)
from redrive.forensics.stacks.model import Frame

_OF_ONE_LINE = {Runtime.JAVA: java_frame, Runtime.NODE: node_frame, Runtime.DOTNET: dotnet_frame}
_OURS = re.compile(r"[\\/]src[\\/]redrive[\\/](?!(?:cli[\\/])?demo)")
"""Redrive's own files where it is developed and not installed. The demonstration's stand for the user's code."""
_CODE = re.compile(r"\s{4,}\S")


class ShownFrame(Struct, frozen=True):
    """A frame of a trace that is shown."""

    line: int  # its first line, from 0
    lines: int
    name: str
    own: bool  # the user's own code


def shown_frames(stack: str) -> list[ShownFrame]:
    """The frames of a trace in its order, whichever runtime printed it."""
    found: list[ShownFrame] = []
    lines = stack.split("\n")
    runtimes = [runtime_of(line) for line in lines]
    for at, (line, runtime) in enumerate(zip(lines, runtimes, strict=True)):
        if runtime is Runtime.GO and at:
            found.append(_shown(at - 1, 2, go_frame(lines[at - 1], line.strip())))
        elif runtime is Runtime.PYTHON:
            frame = python_frame(line)
            found.append(_shown(at, _with_code(lines, at), frame, ours=bool(_OURS.search(line))))
        elif runtime is not None and runtime in _OF_ONE_LINE:
            found.append(_shown(at, 1, _OF_ONE_LINE[runtime](line)))
    return [frame for frame, after in pairwise([*found, None]) if frame and not _is_within(frame, after)]


def place_of(stack: str, frames: list[ShownFrame]) -> ShownFrame | None:
    """The innermost frame of the user's own code, where to look first: Python prints it last, all others first."""
    own = [frame for frame in frames if frame.own]
    if not own:
        return None
    is_python = runtime_of(stack.split("\n")[own[0].line]) is Runtime.PYTHON
    return own[-1] if is_python else own[0]


def _shown(line: int, lines: int, frame: Frame, *, ours: bool = False) -> ShownFrame:
    return ShownFrame(line, lines, frame.name, frame.own and not ours)


def _with_code(lines: list[str], at: int) -> int:
    """How many lines a frame of Python has: with the code that is printed below it."""
    end = at + 1
    while end < len(lines) and _CODE.match(lines[end]) and runtime_of(lines[end]) is None:
        end += 1
    return end - at


def _is_within(frame: ShownFrame, after: ShownFrame | None) -> bool:
    """Whether the next frame begins with it: two places behind one function of Go."""
    return after is not None and after.line < frame.line + frame.lines
