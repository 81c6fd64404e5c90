"""Which version of the user's code is newer: pure, and honest about what has no order.

1.4.2 < 1.10            numbers, not letters
v1.4.2 = 1.4.2 = 1.4.2.0
1.5.0rc1 < 1.5.0        and a1 < b1 < rc1; 1.5.0-beta.2 and 1.5.0.dev3 are before it, too
1.5.0 < 1.5.0-3-gabc    `git describe`: three commits after it
g1a2b3c4                a commit: it is the same, or it cannot be said
"""

from __future__ import annotations

import re
from typing import TypeAlias

Key: TypeAlias = tuple[tuple[int, ...], tuple[int, int], int, int]

_VERSION = re.compile(
    r"""[vV]?
    (?P<release>\d{1,18}(?:\.\d{1,18})*)
    (?:[-._]?(?P<stage>dev|alpha|a|beta|b|preview|pre|rc|c|snapshot)[-._]?(?P<stage_number>\d{1,18})?)?
    (?:[-._]?(?:post|rev|r)[-._]?(?P<post>\d{1,18}))?
    (?:-(?P<commits>\d{1,18})-g[0-9a-f]{4,40})?
    (?:-dirty)?
    (?:\+[0-9A-Za-z.-]+)?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_STAGES = {"dev": 0, "snapshot": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3, "pre": 3, "preview": 3}
_RELEASED = 4
_TEXT = re.compile(r"[^\s\x00-\x1f\x7f]{1,100}")


def order_of(version: str) -> Key | None:
    """What versions are ordered by; None of one that has no place in an order, such as a commit."""
    parts = _VERSION.fullmatch(version)
    if parts is None:
        return None
    numbers = [int(number) for number in parts["release"].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    stage = _STAGES[parts["stage"].lower()] if parts["stage"] else _RELEASED
    return tuple(numbers), (stage, int(parts["stage_number"] or 0)), int(parts["post"] or 0), int(parts["commits"] or 0)


def is_at_least(version: str, least: str) -> bool | None:
    """Whether a version is that one or newer. None: it is another, and nothing says which of the two is newer."""
    if version == least:
        return True
    known, wanted = order_of(version), order_of(least)
    return None if known is None or wanted is None else known >= wanted


def is_version(text: str) -> bool:
    """Whether that could be what somebody calls a version: one word of at most 100 characters."""
    return _TEXT.fullmatch(text) is not None
