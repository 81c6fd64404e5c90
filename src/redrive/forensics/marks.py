"""What people have said of a group: that it is fixed in a version, that nobody wants to hear of it, whose it is.

    open ─▶ fixed (in 1.4.2, which not every worker runs yet) ─▶ deployed ─▶ its letters go back
              └─────────────┬───────────────────────────────────────┘
                            ▼ a letter of it dies on 1.4.2 or newer
                        regressed

A group is muted beside that, until a time. Each group has one small document, and every change is compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.errors import ChangedMeanwhile
from redrive.stores.base import Documents
from redrive.untrusted import UNREADABLE

KIND = "group"
_MOST = 10_000


class GroupState(StrEnum):
    """Where a group stands."""

    OPEN = "open"  # nobody has said anything of it
    FIXED = "fixed"  # in a version that not every worker of its sources runs yet
    DEPLOYED = "deployed"  # they all run it
    REGRESSED = "regressed"  # a letter of it died on that version all the same
    MUTED = "muted"  # nobody is told of it, for a while


class Fix(Struct, frozen=True, kw_only=True):
    """A group is fixed in that version of the user's code."""

    id: str  # of this fix: a group may be fixed again
    version: str
    by: str
    at: datetime
    why: str = ""
    auto: bool = False  # its letters go back by themselves once it is deployed
    deployed_at: datetime | None = None
    replay: str | None = None  # the replay that was started for it
    regressed_at: datetime | None = None
    regressed_in: str = ""  # the version that a letter of it died on
    letter: str | None = None  # that letter

    @property
    def state(self) -> GroupState:
        if self.regressed_at is not None:
            return GroupState.REGRESSED
        return GroupState.FIXED if self.deployed_at is None else GroupState.DEPLOYED


class Mute(Struct, frozen=True, kw_only=True):
    """Nobody is told of a group until then."""

    by: str
    at: datetime
    until: datetime
    why: str


class Mark(Struct, frozen=True, kw_only=True):
    """All that was said of a group."""

    group: str
    fix: Fix | None = None
    mute: Mute | None = None
    assignee: str | None = None  # who sees to it

    def is_muted(self, now: datetime) -> bool:
        return self.mute is not None and now < self.mute.until

    def state(self, now: datetime) -> GroupState:
        if self.is_muted(now):
            return GroupState.MUTED
        return GroupState.OPEN if self.fix is None else self.fix.state


class Marks:
    """The marks of a store."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def all(self) -> dict[str, Mark]:
        """Every mark that says something, by its group. One that cannot be read is left out."""
        found = [_read(document.body) for document in await self._documents.list(KIND, limit=_MOST)]
        return {mark.group: mark for mark in found if mark is not None and mark != Mark(group=mark.group)}

    async def get(self, group: str) -> Mark:
        """The mark of a group; an empty one, if nothing was said of it."""
        document = await self._documents.get(KIND, group)
        return (_read(document.body) if document else None) or Mark(group=group)

    async def change(self, group: str, change: Callable[[Mark], Mark]) -> tuple[Mark, Mark]:
        """Change a mark, whoever else does so at the same time; returns it as it was and as it is."""
        while True:
            document = await self._documents.get(KIND, group)
            old = (_read(document.body) if document else None) or Mark(group=group)
            new = change(old)
            if new == old:
                return old, new
            body: dict[str, Any] = msgspec.to_builtins(new)
            if await self._documents.put(KIND, group, body, expect=document.version if document else 0):
                return old, new
            if document is None and await self._documents.get(KIND, group) is None:  # it is there, and not for us
                raise ChangedMeanwhile(f"the letters of {group} are not those that they were: look at the group again")

    async def change_fix(self, group: str, fix: str, **changes: Any) -> bool:
        """Change a fix, if it is still that one; returns whether it is we who changed it."""
        unset = {name for name in changes if name.endswith("_at")}

        def changed(mark: Mark) -> Mark:
            known = mark.fix
            if known is None or known.id != fix or any(getattr(known, name) is not None for name in unset):
                return mark  # it was undone, or somebody else was first
            return replace(mark, fix=replace(known, **changes))

        old, new = await self.change(group, changed)
        return old != new


def muted(marks: Mapping[str, Mark], now: datetime) -> frozenset[str]:
    """The groups that are muted now."""
    return frozenset(group for group, mark in marks.items() if mark.is_muted(now))


def _read(body: dict[str, Any]) -> Mark | None:
    try:
        return msgspec.convert(body, Mark)
    except UNREADABLE:
        return None
