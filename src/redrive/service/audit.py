"""The audit trail as it is read, proven and written out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.access.trail import Checkpoint, Line, Phase
from redrive.access.trail_store import BEGAN, Filter, Verdict
from redrive.service.replaying import OfReplays

_SOME = 500


class OfTrail(OfReplays):
    """Who did what."""

    async def audit(
        self, limit: int = 100, *, only: Filter | None = None, before: int | None = None
    ) -> list[dict[str, Any]]:
        """Who did what, newest first: each act once, with its outcome; `began` where that is not known."""
        return [line async for line in self.acts(only or Filter(), limit=limit, before=before)]

    async def verify_audit(self, checkpoint: Checkpoint | None = None) -> Verdict:
        """Follow the chain of the trail, and name the first line that is not as it was written."""
        return await self.trail.verify(checkpoint)

    async def audit_checkpoint(self) -> Checkpoint:
        """The signed head of the chain."""
        return await self.trail.checkpoint()

    async def audit_lines(self, name: str = "stdout", *, actor: Actor) -> AsyncIterator[bytes]:
        """Every line of the trail as JSON, oldest first, masked, some at a time; that it was asked for is one too.

        name   of what they are written to
        """
        await self.note(actor, "audit export", name)
        text, some = self.redactor.text, list[bytes]()
        async for line in self.trail.lines(ascending=True):
            some.append(msgspec.json.encode(replace(line, detail=text(line.detail), reason=text(line.reason))) + b"\n")
            if len(some) == _SOME:
                yield b"".join(some)
                some = []
        yield b"".join(some)

    async def acts(self, only: Filter, *, limit: int, before: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """The same one by one, and behind them the lines from before there was a chain."""
        left, ended = limit, set[int]()
        later = None if before is None else self.trail.ended_from(before)
        async for line in self.trail.lines(before=before):
            if line.of is not None:
                ended.add(line.of)
            if line.seq in ended or line.action == BEGAN or not only.takes(line):
                continue
            if line.outcome is Phase.BEGAN and later is not None and await _is_among(line.seq, later, ended):
                continue  # its outcome is on a page before
            if left == 0:
                return
            left -= 1
            yield self._told(line)
        async for older in self.trail.older():
            if left == 0 or only != Filter():
                return
            left -= 1
            yield {**older.body, "detail": self.redactor.text(older.body["detail"])}

    def _told(self, line: Line) -> dict[str, Any]:
        text = self.redactor.text
        told: dict[str, Any] = msgspec.to_builtins(line)
        who = f"{line.actor} ({line.id})" if line.id else line.actor
        masked = {"actor": text(who), "detail": text(line.detail), "reason": text(line.reason)}
        return {**told, **masked, "outcome": str(line.outcome), "about": [*line.about]}


async def _is_among(seq: int, later: AsyncIterator[int], ended: set[int]) -> bool:
    """Whether that act ended in a later line. What is read on the way is kept for the next that is asked for."""
    async for found in later:
        ended.add(found)
        if found == seq:
            return True
    return False
