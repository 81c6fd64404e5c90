"""Reads what .NET prints: the exceptions outermost first, then their frames innermost first."""

from __future__ import annotations

from redrive.forensics.stacks.frames import Runtime, dotnet_frame, runtime_of
from redrive.forensics.stacks.headers import Builder, header_of
from redrive.forensics.stacks.model import Stack

_ARROW = "---> "
_END = "--- End of inner exception stack trace ---"
_MEMBER = "(Inner Exception #"


def read_dotnet(lines: list[str]) -> Stack | None:
    """The exception with its inner ones; those that an AggregateException lists at its end are its members."""
    reader = _Reader()
    for number, line in enumerate(lines):
        if line.strip().startswith(f"{_ARROW}{_MEMBER}"):
            members = _members(lines[number:])
            break
        reader.read(line)
    else:
        members = ()
    return Stack(tuple(raised.done() for raised in reader.chain), members) if reader.chain else None


def _members(lines: list[str]) -> tuple[Stack, ...]:
    """Each begins with its number. The first of them is the inner exception that was told already."""
    readers: list[_Reader] = []
    for line in lines:
        text = line.strip()
        if text.startswith(f"{_ARROW}{_MEMBER}"):
            readers.append(_Reader())
            line = text.partition(") ")[2]
        readers[-1].read(line.replace("<---", ""))
    return tuple(Stack(tuple(raised.done() for raised in reader.chain)) for reader in readers if reader.chain)


class _Reader:
    """Reads one exception and its inner ones. Their frames come when all of them are named."""

    def __init__(self) -> None:
        self.chain: list[Builder] = []
        self._at = -1
        self._framed = False

    def read(self, line: str) -> None:
        text = line.strip()
        if text.startswith(_END):
            self._at = max(self._at - 1, 0)
        elif runtime_of(line) is Runtime.DOTNET:
            self._framed = True
            if self.chain:
                self.chain[self._at].frames.append(dotnet_frame(line))
        elif not self._framed and text:
            self._say(text)

    def _say(self, text: str) -> None:
        """A line before the first frame: `A: b ---> C: d`, or the rest of a message."""
        if self.chain and not text.startswith(_ARROW) and f" {_ARROW}" not in text:
            self.chain[-1].say(text)
            return
        for number, part in enumerate(text.removeprefix(_ARROW).split(f" {_ARROW}")):
            if self.chain and number == 0 and not text.startswith(_ARROW):
                self.chain[-1].say(part)
            else:
                self.chain.append(Builder(*header_of(part)))
        self._at = len(self.chain) - 1
