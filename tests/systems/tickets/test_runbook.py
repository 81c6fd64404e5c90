"""The runbook "DLQ ticket recovery", followed word for word."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any

from redrive.forensics.query import Query
from redrive.model import State
from redrive.systems.tickets.metrics import TicketMetrics
from redrive.systems.tickets.ticket import REASONS
from redrive.telemetry.events import Events
from redrive.telemetry.metrics import Metrics
from redrive.testing.waiting import until
from tests.cli.world import Shell
from tests.docs.samples import DOCS, blocks
from tests.systems.tickets.test_commands import shell
from tests.systems.tickets.world import World, failing

__all__ = ["shell"]
PAGE = DOCS / "systems" / "tickets.md"


def runbook() -> list[str]:
    text = PAGE.read_text().partition("## Runbook")[2]
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("redrive tickets")]
    assert len(lines) == 8
    return lines


async def test_the_runbook_is_followed_word_for_word(world: World, shell: Shell) -> None:
    steps = dict(zip(("check", "by", "which", "dry", "send", "left", "purge", "topic"), runbook(), strict=True))

    async def do(step: str, code: int = 0) -> str:
        done = await asyncio.to_thread(shell.process, *shlex.split(steps[step])[1:], code=code)
        return (done.stdout + done.stderr).decode()

    world.send(*range(12))
    async with world.worker(failing):
        await world.main.until_committed(12)
    assert await world.collected() == 12
    assert "wanted" in await do("check", code=1)  # the topics of this test are not the document's
    assert "12" in await do("by")
    assert (await do("which")).count("TimeoutError: the engine does not answer") == 5
    assert "12 tickets would be sent back" in await do("dry")
    mended: list[str] = []

    async def handle(ticket: dict[str, Any]) -> None:
        mended.append(ticket["ticket_id"])

    async with world.worker(handle) as worker:
        counts = re.findall(r"\b(?:sent|resolved) (\d+)", await do("send"))  # some are handled before all are sent
        assert sum(map(int, counts)) == 12

        async def all_resolved() -> bool:
            return await worker.app.store.letters.count(Query(states=(State.RESOLVED,))) == 12

        await until(all_resolved, what="each ticket's outcome is known")
    assert sorted(mended) == sorted(world.id(number) for number in range(12))
    assert "no dead ticket matches" in await do("left", code=1)
    assert "nothing was deleted" in await do("purge", code=1)
    assert "12 tickets sent back" in await do("topic")


def test_every_command_metric_and_reason_is_on_the_page(tmp_path: Path) -> None:
    text = PAGE.read_text()
    metrics = Metrics(Events())
    TicketMetrics(metrics)
    names = [family.name for family in metrics.registry.collect() if family.name.startswith("worker_agent")]
    assert len(names) == 3
    assert [name for name in names if name not in text] == []
    assert [reason for reason in set(REASONS.values()) - {"parked"} if f"`{reason}`" not in text] == []
    said = Shell(tmp_path)("tickets", "--help").stdout
    commands = {line for block in blocks(PAGE) if block.language == "sh" for line in block.commands}
    assert {line.split()[2] for line in commands} <= {word for word in said.split() if word.isascii()}
