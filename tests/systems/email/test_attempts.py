"""Attempts count what the receiver saw, the DLQ says so everywhere alike, and no job is sent twice by us."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from redrive.config.settings import Settings
from redrive.errors import NotNow
from redrive.model import State
from redrive.service import Service
from redrive.systems.email import EmailGateway, Mail, SendError, validate_dlq_entry
from redrive.systems.email.snapshot import turns_of
from redrive.telemetry.events import BackendDown
from redrive.testing.clock import START
from redrive.testing.waiting import until
from redrive.transports.base import Paused
from tests.actors import acting
from tests.cli.world import Shell
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis
from tests.systems.email.jobs import job
from tests.systems.email.mailserver import Mailbox
from tests.systems.email.world import dlq_has, entries, has_states, is_drained, running, with_email


class Script:
    """A sender that does, attempt by attempt, what it is told, and then sends."""

    def __init__(self, *steps: BaseException) -> None:
        self.steps = list(steps)
        self.seen: list[str] = []
        self.sent: list[str] = []

    async def send(self, mail: Mail) -> None:
        self.seen.append(mail.job.outbox_id)
        if self.steps:
            raise self.steps.pop(0)
        self.sent.append(mail.job.outbox_id)

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


# -- what spends no attempt ----------------------------------------------------------------------------------------


async def test_a_refusal_is_sent_once_while_a_full_redis_cannot_take_its_entry(
    settings: Settings, mailbox: Mailbox, start_server: StartsServer
) -> None:
    server = start_server(Redis)
    settings = with_email(settings, redis=server.url, rate=None)
    mailbox.always["ana@example.com"] = "550 no such user"
    mailbox.once["bob@example.com"] = ["421 busy"]
    async with Client.from_url(server.url) as client, running(settings) as gateway:
        down: list[Any] = []
        gateway.app.events.subscribe(lambda event: down.append(event) if isinstance(event, BackendDown) else None)
        await gateway.app.transport().pause(Paused("email:send", by="ann", at=START))  # type: ignore[attr-defined]
        await gateway.add_all([job("o-1"), job("o-2", to="bob@example.com")])
        await client.config_set("maxmemory", 1)
        await gateway.app.transport().resume("email:send")  # type: ignore[attr-defined]
        await until(lambda: len(down) >= 2, timeout=30, what="its entry was refused again and again")
        await until(lambda: mailbox.recipients == ["bob@example.com"], what="others go on")
        await client.config_set("maxmemory", 512 * 2**20)
        await until(dlq_has(client, 1), timeout=30)
        (entry,) = await entries(client)
    assert (entry["jobId"], entry["failedAttempts"], entry["lastFailureCode"]) == ("o-1", 1, "550")
    assert mailbox.rcpts.count("ana@example.com") == 1


async def test_a_sender_that_says_not_now_spends_no_attempt(settings: Settings, client: Client) -> None:
    """Such as one whose breaker is open."""
    sender = Script(*[NotNow("the breaker is open", pause=timedelta(milliseconds=5))] * 12, SendError("no", code="550"))
    async with running(with_email(settings, rate=None), sender=sender) as gateway:
        await gateway.add(job())
        await until(dlq_has(client, 1))
    (entry,) = await entries(client)
    assert (entry["failedAttempts"], len(sender.seen)) == (1, 13)


async def test_a_store_that_is_away_spends_no_attempt(settings: Settings, client: Client) -> None:
    """Who has an e-mail already is asked of the store before a second attempt."""
    sender = Script(SendError("busy", code="421"))
    async with running(with_email(settings, rate=None), sender=sender) as gateway:
        gets = _failing_gets(gateway, times=2)
        await gateway.add(job())
        await until(lambda: sender.sent == ["o-1"], timeout=30)
        await until(lambda: is_drained(gateway))
    assert len(gets) == 2
    assert sender.seen == ["o-1", "o-1"]


def _failing_gets(gateway: EmailGateway, times: int) -> list[str]:
    """The store of documents is unavailable for so many questions."""
    from redrive.errors import StoreUnavailable

    documents, asked = gateway.app.store.documents, list[str]()
    get = documents.get

    async def fails(kind: str, id: str) -> Any:
        if kind == "email-accepted" and len(asked) < times:
            asked.append(id)
            raise StoreUnavailable("redis", "away")
        return await get(kind, id)

    documents.get = fails  # type: ignore[method-assign]
    return asked


async def test_an_expired_job_that_nobody_tried_says_0(settings: Settings, mailbox: Mailbox, client: Client) -> None:
    async with EmailGateway(with_email(settings, ttl=timedelta(milliseconds=1))) as producer:
        await producer.add(job())
    async with running(settings):
        await until(dlq_has(client, 1))
    (entry,) = await entries(client)
    assert validate_dlq_entry(entry).failedAttempts == 0
    assert mailbox.rcpts == []


async def test_a_companys_jobs_are_counted_and_not_their_attempts(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    mailbox.once["ana@example.com"] = ["421 busy"] * 4
    async with running(settings) as gateway:
        await gateway.add_all([job("o-1"), job("o-2", to="bob@example.com")])
        await until(lambda: is_drained(gateway))
        (acme,) = await turns_of(gateway.app.transport(), "email:send")
    assert acme.total_processed == 2


# -- the DLQ after the last death ----------------------------------------------------------------------------------


async def test_the_entry_moves_with_the_last_death(settings: Settings, mailbox: Mailbox, client: Client) -> None:
    mailbox.always["ana@example.com"] = "550 no"
    async with running(settings) as gateway:
        await gateway.add(job())
        await until(dlq_has(client, 1))
        ((first, at),) = await _scored(client)
        await Service(gateway.app).retry(["o-1"], actor=acting("test"))
        await until(lambda: has_states(gateway, exhausted=1))
        ((second, later),) = await _scored(client)
    assert _moved(second) > _moved(first)
    assert later > at
    assert abs(later / 1000 - _moved(second).timestamp()) < 0.01
    assert second["failedAttempts"] == 2


async def _scored(client: Client) -> Sequence[tuple[dict[str, Any], float]]:
    (entry,) = await entries(client)
    found: Any = await client.zrange("email:send:dlq", 0, -1, withscores=True)
    return [(entry, float(found[0][1]))]


def _moved(entry: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(entry["movedToDLQAt"])


async def test_a_code_is_the_same_in_the_entry_in_statistics_and_in_filters(
    shell: Shell, redis_url: str, smtp_url: str, mailbox: Mailbox
) -> None:
    from redrive.config.load import read

    settings = read(shell.place / "redrive.toml").settings
    settings = with_email(settings, sender=smtp_url, rate=None)
    mailbox.always |= {"ana@example.com": "550 no", "bob@example.com": "421 busy"}
    async with EmailGateway(with_email(settings, ttl=timedelta(milliseconds=1))) as producer:
        await producer.add(job("expired"))
    async with Client.from_url(redis_url) as client:
        async with running(settings) as gateway:
            await until(dlq_has(client, 1))
            await gateway.app.send("email:send", b"no job", id="broken")
            await gateway.add_all([job("refused"), job("busy", to="bob@example.com")])
            await until(dlq_has(client, 4), timeout=30)
        shown = {entry["jobId"]: entry["lastFailureCode"] for entry in await entries(client)}
    assert shown == {"expired": "554", "broken": "500", "refused": "550", "busy": "421"}
    stats = await asyncio.to_thread(shell.json, "email", "dlq", "stats", "--by", "code")
    assert stats == dict(Counter(shown.values()))
    for id, code in shown.items():
        listed = await asyncio.to_thread(shell.json, "email", "dlq", "list", "--code", code)
        assert [entry["jobId"] for entry in listed] == [id]


# -- added again ---------------------------------------------------------------------------------------------------


async def test_a_dead_job_that_is_added_again_and_then_reprocessed_is_sent_once(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    mailbox.always["ana@example.com"] = "550 no"
    async with running(settings) as gateway:
        await gateway.add(job())
        await until(dlq_has(client, 1))
        mailbox.always.clear()
        await gateway.add(job(text="It has come."))
        await until(lambda: len(mailbox.delivered) == 1)
        await until(lambda: has_states(gateway, resolved=1))
        plan = await Service(gateway.app).plan(_every())
        assert plan.total == 0
    assert b"It has come." in mailbox.delivered[0][2]
    assert await entries(client) == []


async def test_a_job_that_is_added_again_and_reprocessed_while_it_is_sent_is_sent_once(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    mailbox.always["ana@example.com"] = "550 no"
    async with running(settings) as gateway:
        await gateway.add(job())
        await until(dlq_has(client, 1))
        mailbox.always.clear()
        mailbox.data.append("hang")
        await gateway.add(job())
        await mailbox.hanging.wait()
        await gateway.add(job())
        assert (await Service(gateway.app).plan(_every())).total == 0, "it is on its way already"
        mailbox.release.set()
        await until(lambda: has_states(gateway, resolved=1))
        await until(lambda: is_drained(gateway))
    assert len(mailbox.delivered) == 1


async def test_a_job_that_is_added_again_and_dies_again_is_one_entry(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    mailbox.always["ana@example.com"] = "550 no"
    async with running(settings) as gateway:
        await gateway.add(job())
        await until(dlq_has(client, 1))
        await gateway.add(job())
        await until(lambda: len(mailbox.rcpts) == 2)
        await until(lambda: is_drained(gateway))
        letters = (await gateway.app.store.letters.search(_every())).letters
    (entry,) = await entries(client)
    assert entry["failedAttempts"] == 2
    assert [letter.state for letter in letters] == [State.PENDING]


def _every() -> Any:
    from redrive.forensics.query import Query
    from redrive.model import OPEN

    return Query(states=OPEN)


@pytest.mark.parametrize(
    ("changes", "priorities"),
    [({}, {5, 4}), ({"base_priority": 20, "priority_increment": 5, "max_priority": 2}, {20, 15})],
)
async def test_priorities_can_be_set(settings: Settings, changes: dict[str, Any], priorities: set[int]) -> None:
    settings = with_email(settings, rate=None, concurrency=1, **changes)
    async with EmailGateway(settings) as gateway:
        transport = gateway.app.transport()
        await gateway.add_all([job(f"{company}-{n}", company) for company in ("acme", "umbrella") for n in range(9)])
        for _ in range(3):
            await transport.receive("email:send", 1)
        turns = await turns_of(transport, "email:send")
    assert {turn.current_priority for turn in turns} <= priorities
    assert max(turn.current_priority for turn in turns) == max(priorities)
