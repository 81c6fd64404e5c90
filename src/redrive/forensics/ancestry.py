"""Where a letter comes from and what follows it, as it is shown: parents, children, replays, versions."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from redrive.forensics.editing import VersionView
from redrive.forensics.views import Summary
from redrive.stores.base import EntryStatus


class Related(Struct, frozen=True):
    """A message that a letter waits for, and the letter of it, if there is one."""

    message_id: str
    letter: Summary | None


class InReplay(Struct, frozen=True):
    """What became of a letter in one replay."""

    id: str
    status: EntryStatus
    at: datetime
    note: str


class LetterLineage(Struct, frozen=True):
    """Everything that a letter is tied to."""

    id: str
    parents: list[Related]  # what it is not sent back before
    parent: Related | None  # the first of them
    children: list[Summary]  # letters that wait for it, newest first
    is_all_children: bool  # whether there are no others; false, too, where a store would have to look for too long
    replays: list[InReplay]  # newest first, of the newest replays and the one that sent it last
    versions: list[VersionView]
