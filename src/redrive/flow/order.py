"""Pure: letters of one key go back one after the other, each when the one before is resolved; children after parents.

    ahead      of a line (transport, source and key): the letter that is on its way, or is about to be
    behind     those that come after it, in the order they died
    dead       lines in which one died again or could not be sent: what is behind it is skipped
    children   letters whose parents (`depends_on`) are not resolved yet

Letters without a key and without parents are in no line and cost nothing. All of it is bounded: `has_capacity` says
when no more may be read from the ledger before something has moved. Who takes over reads it anew from the ledger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import blake2b
from itertools import islice
from typing import TypeAlias

from redrive.model import WAITING, Letter, LetterId, State

MOST_AHEAD = 20_000
"""Letters with a key that may be on their way at once."""
MOST_BEHIND = 10_000
MOST_DEAD = 100_000
Line: TypeAlias = bytes
AT_REST = (State.PENDING, State.EXHAUSTED)


class Place(Enum):
    GO = "go"
    WAIT = "wait"
    SKIP = "skip"


class Fate(Enum):
    """What became of a letter that was sent, as far as those behind it care."""

    OPEN = "open"  # not known yet
    DONE = "done"  # resolved, archived, deleted; or nobody will ever tell
    DIED = "died"


def line_of(letter: Letter) -> Line | None:
    """The line that a letter stands in; None for one without a key."""
    message = letter.message
    if message.key is None:
        return None
    digest = blake2b(f"{letter.transport}\0{message.source}\0".encode("utf-8", "surrogatepass"), digest_size=12)
    digest.update(message.key)
    return digest.digest()


def fate_of(letter: Letter | None) -> Fate:
    """A letter that was parked, or is behind another of its key, waits for its next attempt, which is no death."""
    if letter is None or letter.state in (State.RESOLVED, State.ARCHIVED, State.SENT):
        return Fate.DONE
    if letter.state in AT_REST and letter.reason not in WAITING:
        return Fate.DIED
    return Fate.OPEN


class Order:
    """The lines of one run of a replay."""

    def __init__(self) -> None:
        self._ahead: dict[Line, LetterId] = {}
        self._behind: dict[Line, deque[LetterId]] = {}
        self._waiting: set[LetterId] = set()
        self._dead: dict[Line, LetterId] = {}
        self._ready: dict[LetterId, None] = {}  # in order
        self.children: dict[LetterId, tuple[str, ...]] = {}

    @property
    def has_capacity(self) -> bool:
        """Whether more letters may be looked at."""
        behind = len(self._waiting) + len(self.children) + len(self._ready)
        return len(self._ahead) < MOST_AHEAD and behind < MOST_BEHIND

    @property
    def is_used(self) -> bool:
        """Whether any letter stands in a line."""
        return bool(self._ahead or self._dead)

    @property
    def is_overrun(self) -> bool:
        """Whether more lines are dead than can be remembered."""
        return len(self._dead) > MOST_DEAD

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for the outcome of something else."""
        return bool(self._waiting or self.children)

    def holds(self, id: LetterId) -> bool:
        """Whether that letter waits here, and has not to be read from the ledger again."""
        return id in self._waiting or id in self.children or id in self._ready

    def place(self, letter: Letter) -> Place:
        """Where a letter stands, in the order in which letters are given. One that may go is ahead of its line."""
        line = line_of(letter)
        if line is None:
            return Place.GO
        if line in self._dead:
            return Place.SKIP
        if self._ahead.setdefault(line, letter.id) == letter.id:
            return Place.GO
        self._behind.setdefault(line, deque()).append(letter.id)
        self._waiting.add(letter.id)
        return Place.WAIT

    def dead_ahead(self, letter: Letter) -> LetterId | None:
        """The letter that died, or was not sent, ahead of this one in its line."""
        line = line_of(letter)
        return None if line is None else self._dead.get(line)

    def watched(self) -> list[LetterId]:
        """Letters on their way whose outcome makes a difference: others are behind them, or there is no room."""
        if self.has_capacity:
            return [self._ahead[line] for line in self._behind if line in self._ahead]
        return list(self._ahead.values())

    def learn(self, fates: Iterable[tuple[LetterId, Fate, Line | None]]) -> list[tuple[LetterId, LetterId]]:
        """Learn what became of letters that were ahead. Returns those to be skipped, each with the one that died."""
        skipped: list[tuple[LetterId, LetterId]] = []
        lines = {id: line for line, id in self._ahead.items()}
        for id, fate, line in fates:
            line = lines.get(id, line)
            if line is None or fate is Fate.OPEN:
                continue
            skipped += self._move_up(line) if fate is Fate.DONE else self._bury(line, id)
        return skipped

    def _move_up(self, line: Line) -> list[tuple[LetterId, LetterId]]:
        del self._ahead[line]
        if behind := self._behind.get(line):
            following = behind.popleft()
            self._waiting.discard(following)
            self._ready[following] = None
            self._ahead[line] = following
            if not behind:
                del self._behind[line]
        return []

    def _bury(self, line: Line, id: LetterId) -> list[tuple[LetterId, LetterId]]:
        self._ahead.pop(line, None)
        self._dead[line] = id
        behind = self._behind.pop(line, deque())
        self._waiting.difference_update(behind)
        return [(late, id) for late in behind]

    def forget(self, letter: Letter, *, is_open: bool) -> list[tuple[LetterId, LetterId]]:
        """A letter was skipped. If it still asks for something, those behind it are skipped as well."""
        line = line_of(letter)
        if line is None or self._ahead.get(line, letter.id) != letter.id:
            return []
        if is_open:
            return self._bury(line, letter.id)
        return self._move_up(line) if line in self._ahead else []

    def recall(self, letters: Sequence[Letter], *, died: bool) -> None:
        """Letters that an earlier run has sent, or that died or were skipped in it."""
        for letter in letters:
            line = line_of(letter)
            if line is None or fate_of(letter) is Fate.DONE:
                continue
            if died or fate_of(letter) is Fate.DIED:
                self._dead[line] = letter.id
            else:
                self._ahead[line] = letter.id

    def take_ready(self, most: int) -> list[LetterId]:
        """Those whose turn has come, at most so many."""
        taken = list(islice(self._ready, most))
        for id in taken:
            del self._ready[id]
        return taken

    def release(self, child: LetterId) -> None:
        """Its parents are resolved: its turn has come."""
        del self.children[child]
        self._ready[child] = None
