"""The ledger of each replay: a hash of its lines, and a sorted set for each status."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

import msgspec
from msgspec.structs import replace

from redrive.clock import microseconds, moment
from redrive.forensics.query import Query
from redrive.model import LetterId
from redrive.stores.base import REPLAYABLE, Cursor, Entry, EntryStatus, number_in
from redrive.stores.redis.access import Access
from redrive.stores.redis.letters import RedisLetters

_DRAFT_LIVES = 3600  # seconds after which the draft of somebody who died is forgotten
_TOGETHER = 500


class RedisLedger:
    """Keeps the lines of every replay."""

    def __init__(self, access: Access, letters: RedisLetters) -> None:
        self._access = access
        self._letters = letters

    async def freeze(self, replay: str, query: Query, *, now: datetime) -> int:
        """Draft the selection beside the ledger, then put it in place in one step: whole, and only once."""
        frozen = self._access.key("ledger", "frozen")
        if not await self._access.command("SISMEMBER", frozen, replay):
            draft = f"{replay}:draft:{uuid.uuid4().hex}"
            await self._draft(draft, query, now)
            keys = [frozen, self._lines(draft), self._selected(draft), self._lines(replay), self._selected(replay)]
            return int(await self._access.run("seal", keys, [replay]))
        return int(await self._access.command("HLEN", self._lines(replay)))

    async def entries(
        self, replay: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 500
    ) -> tuple[Sequence[Entry], Cursor | None]:
        statuses = list(EntryStatus) if status is None else [status]
        reply = await self._access.run("lines", self._keys(replay), [number_in(after), limit, *statuses])
        lines = [msgspec.msgpack.decode(line) for line in reply[1::2]]
        entries = [
            Entry(replay, letter.decode(), EntryStatus(status), moment(at), note)
            for letter, (_, status, at, note) in zip(reply[::2], lines, strict=True)
        ]
        return entries, str(lines[-1][0]) if len(lines) == limit and lines else None

    async def of_letter(self, letter: LetterId, replays: Sequence[str]) -> Sequence[Entry]:
        if not replays:
            return []
        packed = await self._access.commands([("HGET", self._lines(replay), letter) for replay in replays])
        lines = [
            (replay, msgspec.msgpack.decode(line))
            for replay, line in zip(replays, packed, strict=True)
            if line is not None
        ]
        return [Entry(replay, letter, EntryStatus(status), moment(at), note) for replay, (_, status, at, note) in lines]

    async def mark(self, entries: Iterable[Entry]) -> None:
        rest = iter(entries)
        while some := list(islice(rest, _TOGETHER)):
            for replay in dict.fromkeys(entry.replay for entry in some):
                rows = [
                    (entry.letter, entry.status, microseconds(entry.at), entry.note)
                    for entry in some
                    if entry.replay == replay
                ]
                await self._access.run("mark", self._keys(replay), [part for row in rows for part in row])

    async def tally(self, replay: str) -> dict[EntryStatus, int]:
        counts = await self._access.commands([("ZCARD", self._status(replay, status)) for status in EntryStatus])
        return {status: count for status, count in zip(EntryStatus, counts, strict=True) if count}

    async def _draft(self, draft: str, query: Query, now: datetime) -> None:
        query = await self._letters.reader.within(query)
        allowed = REPLAYABLE if query.states is None else tuple(state for state in query.states if state in REPLAYABLE)
        line, at = 0, microseconds(now)
        lines, selected = self._lines(draft), self._selected(draft)
        async for some in self._letters.reader.selected(replace(query, states=allowed), oldest_first=True):
            for start in range(0, len(some), _TOGETHER):
                numbered = list(enumerate((letter.id for letter in some[start : start + _TOGETHER]), start=line + 1))
                line += len(numbered)
                packed = [(id, msgspec.msgpack.encode((n, EntryStatus.SELECTED, at, ""))) for n, id in numbered]
                await self._access.commands(
                    [
                        ("HSET", lines, *(part for pair in packed for part in pair)),
                        ("ZADD", selected, *(part for pair in numbered for part in pair)),
                        ("EXPIRE", lines, _DRAFT_LIVES),
                        ("EXPIRE", selected, _DRAFT_LIVES),
                    ]
                )

    def _keys(self, replay: str) -> list[bytes]:
        return [self._lines(replay), self._access.key("ledger", replay)]

    def _lines(self, replay: str) -> bytes:
        return self._access.key("ledger", replay, "lines")

    def _selected(self, replay: str) -> bytes:
        return self._status(replay, EntryStatus.SELECTED)

    def _status(self, replay: str, status: EntryStatus) -> bytes:
        return self._access.key("ledger", replay, status)
