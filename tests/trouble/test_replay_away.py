"""A store that goes away in the middle of a guarded replay: it goes on when the store is back, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from pathlib import Path

import pytest

from redrive import Message, Policy
from redrive.flow.guard import Guard
from redrive.flow.replay import ReplayState
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.stores.sqlite import SqliteStore
from redrive.telemetry.events import BackendDown
from redrive.testing.faults import store_outage
from redrive.testing.waiting import until
from redrive.upkeep.replaying import Replaying
from tests.actors import acting
from tests.trouble.helpers import Told, make_app, until_letters, url_in, working

LETTERS = 24


@pytest.mark.parametrize("only", [None, ["put"], ["mark"], ["tally"]])
async def test_a_store_that_is_away_in_the_middle_of_a_guarded_replay(tmp_path: Path, only: list[str] | None) -> None:
    """All of it, or one call of it: the process that ran it goes on with it."""
    outage, store = store_outage(SqliteStore(url_in(tmp_path)), **({} if only is None else {"only": only}))
    app = make_app(tmp_path, store=store, batch=5)
    service, told, came = Service(app), Told(app), Counter[str]()

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: int, message: Message) -> None:
        if not message.was_sent_back:
            raise ConnectionError("the card gateway does not answer")
        came[message.id] += 1
        if len(came) == 2:  # in the canary
            outage.down = True

    replaying = Replaying(service.replays, app.events, app.clock, owner="upkeep")
    async with app, aclosing(replaying), working(app):
        await app.send_messages([app.message("orders", n, key=b"%d" % (n % 6)) for n in range(LETTERS)])
        await until_letters(app, LETTERS)
        guard = Guard(canary=4, ramp=(50, 100))
        replay = await service.replay(Query(), every=True, actor=acting("ann"), guard=guard, ordered=True)
        await replaying.begin()
        await until(lambda: outage.down and bool(told.of(BackendDown)), what="the store is away, and it is told")
        outage.down = False

        async def is_done() -> bool:
            await replaying.begin()  # as upkeep does, every few seconds
            report = await service.replay_report(replay.id)
            return report.replay.state is ReplayState.SENT and report.entries == {EntryStatus.RESOLVED: LETTERS}

        await until(is_done, what="the replay has ended, and every letter is resolved")
    assert len(came) == LETTERS
