"""What people write down beside a group: one small document for each group, the newest notes of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from redrive.stores.base import Documents
from redrive.untrusted import UNREADABLE

KIND = "group-notes"
MOST, LONGEST = 200, 10_000


class GroupNote(Struct, frozen=True):
    """What somebody wrote down beside a group."""

    at: datetime
    actor: str
    text: str


class Notes:
    """The notes of a store. Two people who write at once are both heard."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def of(self, group: str) -> list[GroupNote]:
        """The notes of a group, the oldest first."""
        document = await self._documents.get(KIND, group)
        return [] if document is None else _read(document.body)

    async def add(self, group: str, note: GroupNote) -> list[GroupNote]:
        """Add one; past the most that are kept, the oldest goes. Returns those there are."""
        while True:
            document = await self._documents.get(KIND, group)
            known = [] if document is None else _read(document.body)
            notes = [*known, note][-MOST:]
            body: dict[str, Any] = {"group": group, "notes": msgspec.to_builtins(notes)}
            if await self._documents.put(KIND, group, body, expect=0 if document is None else document.version):
                return notes


def _read(body: dict[str, Any]) -> list[GroupNote]:
    try:
        return msgspec.convert(body["notes"], list[GroupNote])
    except (KeyError, *UNREADABLE):
        return []
