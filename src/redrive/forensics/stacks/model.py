"""What is read from a stack trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct


class Frame(Struct, frozen=True):
    """A function that was running, named without lines, addresses and numbers that a compiler made up."""

    name: str
    own: bool
    """Whether it is the user's own code, not that of a library or of the runtime."""


class Raised(Struct, frozen=True):
    """One exception of a trace. Its innermost frame is the first, as most runtimes print it."""

    type: str
    message: str
    frames: tuple[Frame, ...] = ()


class Stack(Struct, frozen=True):
    """An exception and what caused it, outermost first; and the members of a group."""

    chain: tuple[Raised, ...]
    members: tuple[Stack, ...] = ()

    @property
    def root(self) -> Raised:
        return self.chain[-1]

    def site(self, limit: int = 3) -> tuple[str, ...]:
        """The innermost frames of the user's own code where the root cause was thrown, innermost last.

        If the root cause has none, those of what it caused. Empty if there is none with a name: what a library throws
        it throws for many reasons, and a function without a name may be any.
        """
        own = ([frame for frame in raised.frames if frame.own] for raised in reversed(self.chain))
        frames = next((frames for frames in own if frames), [])
        names = tuple(reversed(tuple(_first(frames, limit))))
        return names if any(not name.endswith(NAMELESS) for name in names) else ()


NAMELESS = "<anonymous>"


def _first(frames: Iterable[Frame], limit: int) -> Iterator[str]:
    """Repeats in a row count once: how deep a recursion went is not its cause."""
    last, count = None, 0
    for frame in frames:
        if frame.name != last and count < limit:
            yield frame.name
            last, count = frame.name, count + 1
