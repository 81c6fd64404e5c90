"""Reads what the JVM prints: Java, Kotlin, Scala, Groovy."""

from __future__ import annotations

import re

from redrive.forensics.stacks.frames import Runtime, java_frame, runtime_of
from redrive.forensics.stacks.headers import Builder, header_of, indent
from redrive.forensics.stacks.model import Frame, Raised, Stack

CAUSE = "Caused by: "
_MOST_FRAMES = 1_500  # more than the JVM keeps
_MORE = re.compile(r"\s*\.\.\. (\d{1,6}) (?:more|common frames omitted)\s*")
_THREAD = re.compile(r'Exception in thread "[^"]*+" ')


def read_java(lines: list[str]) -> Stack | None:
    """The exception and its causes. What was suppressed is not what went wrong, and is passed over."""
    chain: list[Builder] = []
    suppressed = False
    for line in lines:
        text = line.lstrip()
        if text.startswith(CAUSE):
            suppressed = suppressed and indent(line) > 0
            if not suppressed:
                _begin(chain, text.removeprefix(CAUSE))
        elif text.startswith("Suppressed: ") and chain and indent(line) > 0:
            suppressed = True
        elif suppressed:
            continue
        elif not chain:
            _begin(chain, _THREAD.sub("", text, count=1))
        else:
            _add(chain[-1], line)
    return Stack(_whole(chain)) if chain else None


def _begin(chain: list[Builder], header: str) -> None:
    """A circle of causes is printed as one that has no frames, and ends there."""
    if not header.startswith("[CIRCULAR REFERENCE"):
        chain.append(Builder(*header_of(header)))


def _add(raised: Builder, line: str) -> None:
    more = _MORE.fullmatch(line)
    if more is not None:
        raised.shared = int(more[1])
    elif runtime_of(line) is Runtime.JAVA:
        raised.frames.append(java_frame(line))
    elif not raised.frames:
        raised.say(line)


def _whole(chain: list[Builder]) -> tuple[Raised, ...]:
    """With the frames that a cause shares with what it caused, which the JVM leaves out."""
    whole: list[Raised] = []
    around: list[Frame] = []
    for raised in chain:
        shared = around[-raised.shared :] if raised.shared else []
        around = (raised.frames + shared)[:_MOST_FRAMES]
        whole.append(Raised(raised.type, raised.message, tuple(around)))
    return tuple(whole)
