"""Reads what Node prints: `error.stack`, and what `console.error` and `util.inspect` show of it."""

from __future__ import annotations

import re

from redrive.forensics.stacks.frames import Runtime, node_frame, runtime_of
from redrive.forensics.stacks.headers import Builder, header_of, indent
from redrive.forensics.stacks.model import Stack

_CODE = re.compile(r"\s+code: '([A-Z][A-Z0-9_]{1,60})',?\s*")
_NAMED = re.compile(r"[\w.]*(?:Error|Exception)\b")
_UNCAUGHT = re.compile(r"(?:\S+:\d+|node:\S+)\s*")  # the place that is printed above an uncaught error


def read_node(lines: list[str]) -> Stack | None:
    """The error, its causes, and the errors of an AggregateError."""
    main: list[Builder] = []
    members: list[list[Builder]] = []
    chain = main
    for line in _from_header(lines):
        text = line.strip()
        if text.startswith("[cause]: "):
            chain.append(Builder(*header_of(text.removeprefix("[cause]: "))))
        elif text.startswith("[errors]: ["):
            chain = []
            members.append(chain)
        elif not main:
            chain.append(Builder(*header_of(text.strip("[]").removesuffix("] {"))))
        elif members and _starts_member(line, chain):
            chain = [Builder(*header_of(text))]
            members.append(chain)
        elif chain:
            _add(chain[-1], line)
    stacks = tuple(Stack(tuple(raised.done() for raised in member)) for member in members if member)
    return Stack(tuple(raised.done() for raised in main), stacks) if main else None


def _from_header(lines: list[str]) -> list[str]:
    """An uncaught error has the line of code above it."""
    if not lines or not _UNCAUGHT.fullmatch(lines[0][:500]):
        return lines
    start = next((number for number, line in enumerate(lines) if _NAMED.match(line)), 0)
    return lines[start:]


def _starts_member(line: str, chain: list[Builder]) -> bool:
    return bool(_NAMED.match(line.strip())) and indent(line) > 0 and (not chain or bool(chain[-1].frames))


def _add(raised: Builder, line: str) -> None:
    code = _CODE.fullmatch(line[:200])
    if code is not None:
        raised.say(code[1])
    elif runtime_of(line) is Runtime.NODE:
        raised.frames.append(node_frame(line))
    elif not raised.frames:
        raised.say(line)
