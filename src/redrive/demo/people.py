"""What people do: they write notes, mute, fix, replay and ask for approval, through the service that everybody uses."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from redrive.access.actors import Actor, Role, Via
from redrive.access.approvals import NeedsApproval
from redrive.errors import RedriveError
from redrive.flow.guard import Guard
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.service import Service


def _person(name: str, role: Role) -> Actor:
    return Actor(id=f"demo-{name}", name=name, role=role, via=Via.TOKEN)


ANN = _person("ann", Role.OPERATOR)
BOB = _person("bob", Role.OPERATOR)
CHRIS = _person("chris", Role.ADMIN)


class People:
    """Ann, Bob and Chris, who are on call."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def group(self, source: str, error: str) -> str:
        """The largest group of a source whose error says that."""
        found = await self.service.app.store.letters.groups(Query(sources=(source,)), limit=100)
        return next(group.id for group in found if error in f"{group.error_type}: {group.message}")

    async def letters(self, group: str, limit: int = 1) -> list[Letter]:
        """Letters of a group, the newest first."""
        page = await self.service.app.store.letters.search(Query(groups=(group,)), limit=limit)
        return list(page.letters)

    async def assign(self, group: str, who: str, note: str, *, by: Actor = ANN) -> None:
        await self.service.assign(group, who, actor=by)
        await self.service.note_group(group, note, actor=by)

    async def mute(self, group: str, span: timedelta, why: str) -> None:
        await self.service.mute(group, span, actor=BOB, why=why)

    async def fix(self, group: str, version: str, why: str, *, auto: bool = False) -> None:
        await self.service.fix(group, version, actor=CHRIS, auto=auto, why=why)

    async def replay(
        self, query: Query, why: str, *, rate: float | None = None, guard: Guard | None = None, by: Actor = BOB
    ) -> None:
        """Start it; upkeep sends it."""
        await self.service.replay(query, actor=by, reason=why, rate=rate, guard=guard)

    async def ask_to_archive(self, group: str) -> None:
        """It is more than one person may do alone, so that it waits for another."""
        with suppress(NeedsApproval):
            await self.service.archive(Query(groups=(group,)), actor=BOB)

    async def edit(self, letter: Letter, body: bytes, why: str) -> None:
        await self.service.edits.edit(letter, actor=ANN, body=body, why=why)

    async def retry(self, letter: Letter) -> None:
        """Send it back, unless it went by itself meanwhile."""
        with suppress(RedriveError):
            await self.service.retry([letter.id], actor=ANN)

    async def see_to_incidents(self) -> None:
        """Acknowledge the worst one that nobody sees to."""
        for incident in await self.service.incidents.list():
            if incident.state == "open" and incident.alert.severity == "critical":
                await self.service.acknowledge(incident.id, actor=CHRIS)
                await self.service.annotate(incident.id, "the storage team is on it, see INC-2219", actor=CHRIS)
                return
