"""The line that names an exception: `java.io.IOException: Broken pipe`."""

from __future__ import annotations

import re

from redrive.forensics.stacks.model import Frame, Raised

_TYPE = re.compile(r"[^\W\d][\w.$+`/]*+(?: \([-\w]++\)| \[[\w-]++\])?(?=:|\s*\Z)")
_ENDINGS = ("Error", "Exception", "Throwable")
_LONGEST = 4_000
_MOST_FRAMES = 2_000


class Builder:
    """An exception while its lines are read."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        self.frames: list[Frame] = []
        self.shared = 0
        self._said = [message] if message else []
        self._length = len(message)

    def say(self, line: str) -> None:
        """One more line of its message. Where nothing has named its type, what was said before was another's."""
        kind, message = header_of(line) if not self.type and not self.frames else ("", "")
        if kind.endswith(_ENDINGS):
            self.type, self._said, self._length = kind, [message], len(message)
        elif line.strip() and self._length < _LONGEST:
            self._said.append(line.strip()[:_LONGEST])
            self._length += len(line)

    @property
    def message(self) -> str:
        return "\n".join(self._said)[:_LONGEST]

    def done(self) -> Raised:
        return Raised(self.type, self.message, tuple(self.frames[:_MOST_FRAMES]))


def header_of(line: str) -> tuple[str, str]:
    """Type and message; a line that names no type is all message."""
    text = line.strip()[:_LONGEST]
    match = _TYPE.match(text)
    if match is None:
        return "", text
    kind, _, number = match[0].partition(" ")
    message = text[match.end() :].removeprefix(":").strip()
    return kind, f"{number} {message}" if number.startswith("[") else message


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())
