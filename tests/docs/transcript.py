"""What a page shows of an output, against what was really printed."""

from __future__ import annotations

import re

GAP = "…"
_VARIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?(?: UTC)?"), "<time>"),
    (re.compile(r"\brdr_\w{10}_[\w-]+"), "<token>"),
    (re.compile(r"\b[0-9a-hjkmnp-tv-z]{26}\b"), "<id>"),
    (re.compile(r"\b[a-z2-7]{16}\b"), "<letter>"),
    (re.compile(r"\b[\w.-]+:\d{2,}\b"), "<worker>"),
    (re.compile(r"\b\d+(?:\.\d+)?(?:us|ms|s|m|h|d)\b"), "<span>"),
    (re.compile(r"\d+\.\d+"), "<number>"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ \t]+"), " "),
)


def shape(text: str) -> str:
    """The text without what differs from one run to the next: times, ids, widths of columns."""
    text = text.replace("\r", "\n")
    for pattern, slot in _VARIES:
        text = pattern.sub(slot, text)
    return "\n".join(line.strip() for line in text.strip().splitlines() if line.strip())


def agrees(shown: str, printed: str, *, so_far: bool = False) -> bool:
    """Whether that is what was printed; `so_far`: whether it begins with it."""
    pattern = "".join(_line(line) for line in shape(shown).splitlines())
    real = shape(printed) + "\n"
    return (re.match if so_far else re.fullmatch)(pattern, real) is not None


def _line(line: str) -> str:
    """One line as a pattern: alone, a gap is any number of lines; within a line, anything."""
    if line == GAP:
        return r"(?:.*\n)*?"
    return r".*?".join(map(re.escape, line.split(GAP))) + r"\n"
