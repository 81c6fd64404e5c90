"""Reads JSON that strangers wrote: what it does to a reader is always one of `UNREADABLE`, and never an overflow.

A decoder in C raises RecursionError where the stack ends, so the same body is readable at one place of the program and
unreadable at another. `read_json` ends at one depth everywhere.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

DEEPEST = 256
"""Levels of JSON that Redrive itself reads. A handler decodes as deep as its decoder can."""
UNREADABLE = (
    msgspec.MsgspecError,
    ValueError,  # UnicodeError, too
    OverflowError,
    RecursionError,
    MemoryError,
)
"""What bytes of a stranger make a decoder raise."""
_MOST_VALUES = 100_000
_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_OPEN, _CLOSE = b"[{", b"]}"


class TooDeep(ValueError):
    """JSON within JSON within JSON, deeper than Redrive reads."""

    def __init__(self) -> None:
        super().__init__(f"more than {DEEPEST} levels of arrays and objects within each other")


def read_json(body: bytes, type: Any = Any) -> Any:
    """The value of those bytes. Raises one of `UNREADABLE`, at the same body wherever it is called."""
    if is_too_deep(body):
        raise TooDeep
    return msgspec.json.decode(body, type=type)


def is_too_deep(body: bytes) -> bool:
    """Whether the bytes, read as JSON, go deeper than `DEEPEST`."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:  # as in almost all
        return False
    level = 0
    for mark in _MARKS.finditer(body):
        if mark[0] in _OPEN:
            level += 1
            if level > DEEPEST:
                return True
        elif mark[0] in _CLOSE:
            level -= 1
    return False


def checked_tree(tree: Any) -> Any:
    """The same tree. Raises ValueError if following it never ends (YAML can refer to itself), or takes far too long
    (a few lines of YAML can stand for billions of values)."""
    ahead, visited = [(tree, 0)], 0
    while ahead:
        node, level = ahead.pop()
        visited += 1
        if level > DEEPEST:
            raise ValueError(f"more than {DEEPEST} levels within each other, or a value that contains itself")
        if visited > _MOST_VALUES:
            raise ValueError(f"more than {_MOST_VALUES:,} values, references followed")
        inner = [*node, *node.values()] if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
        ahead += [(part, level + 1) for part in inner]
    return tree
