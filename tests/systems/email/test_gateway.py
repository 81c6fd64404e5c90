"""The e-mail system end to end: a real Redis, a real SMTP server."""

from __future__ import annotations

import email
import json
from datetime import timedelta
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from redrive.config.settings import Settings
from redrive.errors import TransportUnavailable, UsageError
from redrive.service import Service
from redrive.systems.email import EmailGateway, validate_dlq_entry
from redrive.systems.email.settings import EmailSettings
from redrive.systems.email.snapshot import turns_of
from redrive.telemetry.events import Event, MessageRetried
from redrive.testing.waiting import until
from tests.actors import acting
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis
from tests.systems.email.jobs import job
from tests.systems.email.mailserver import Mailbox
from tests.systems.email.world import QUICK, dlq_has, entries, has_states, is_drained, running, with_email


async def test_a_job_is_sent_once_however_often_it_is_added(settings: Settings, mailbox: Mailbox) -> None:
    async with EmailGateway(settings) as producer:
        for _ in range(3):
            await producer.add(job("o-1"))
        await producer.add_all([job("o-2"), job("o-2"), job("o-3")])
        depths = await producer.app.transport().depths()
        assert depths["email:send"].ready == 3
    async with running(settings) as gateway:
        await until(lambda: len(mailbox.delivered) == 3)
        await until(lambda: is_drained(gateway))
    assert len(mailbox.delivered) == 3


async def test_a_temporary_refusal_is_tried_again(settings: Settings, mailbox: Mailbox, client: Client) -> None:
    mailbox.once["ana@example.com"] = ["421 busy", "450 later", "451 local", "452 full"]
    heard: list[Event] = []
    async with running(settings) as gateway:
        gateway.app.events.subscribe(heard.append)
        await gateway.add(job())
        await until(lambda: len(mailbox.delivered) == 1)
    retried = [one for one in heard if isinstance(one, MessageRetried)]
    assert [(one.failure.attempt, one.failure.code) for one in retried] == [
        (1, "421"),
        (2, "450"),
        (3, "451"),
        (4, "452"),
    ]
    assert await entries(client) == []


async def test_after_the_fifth_attempt_it_is_in_the_dlq(settings: Settings, mailbox: Mailbox, client: Client) -> None:
    mailbox.always["ana@example.com"] = "421 busy"
    async with running(settings) as gateway:
        await gateway.add(job())
        await until(dlq_has(client, 1))
    (entry,) = await entries(client)
    assert validate_dlq_entry(entry).failedAttempts == 5
    assert (entry["jobId"], entry["companyId"], entry["lastFailureCode"]) == ("o-1", "acme", "421")
    assert entry["lastFailureReason"] == "SMTP 421: busy <ana@example.com>"
    assert entry["originalData"] == job()
    assert len(mailbox.rcpts) == 5


@pytest.mark.parametrize("answer", ["550 Mailbox not found", "554 no", "500 what", "551 not here"])
async def test_a_permanent_refusal_is_in_the_dlq_at_once(
    settings: Settings, mailbox: Mailbox, client: Client, answer: str
) -> None:
    mailbox.always["ana@example.com"] = answer
    async with running(settings) as gateway:
        await gateway.add(job())
        await until(dlq_has(client, 1))
    (entry,) = await entries(client)
    assert validate_dlq_entry(entry).failedAttempts == 1
    assert entry["lastFailureCode"] == answer[:3]
    assert len(mailbox.rcpts) == 1


async def test_a_reprocessed_job_leaves_the_dlq_when_it_is_sent(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    mailbox.always |= {"ana@example.com": "550 no", "bob@example.com": "550 no"}
    async with running(settings) as gateway:
        await gateway.add_all([job("o-1"), job("o-2", to="bob@example.com")])
        await until(dlq_has(client, 2))
        del mailbox.always["ana@example.com"]
        service = Service(gateway.app)
        report = await service.retry(["o-1", "o-2"], actor=acting("test"))
        await until(dlq_has(client, 1))
        await until(lambda: has_states(gateway, exhausted=1, resolved=1))
        tally = await service.replay_report(report.replay.id)
    (entry,) = await entries(client)
    assert entry["jobId"] == "o-2"
    assert entry["failedAttempts"] == 2
    assert {str(status): count for status, count in tally.entries.items() if count} == {"resolved": 1, "failed": 1}
    assert mailbox.recipients == ["ana@example.com"]


async def test_a_retry_goes_only_to_those_who_have_not_got_it(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    mailbox.once["b@e.org"] = ["450 later", "450 later"]
    mailbox.always["c@e.org"] = "550 no such user"
    async with running(settings) as gateway:
        await gateway.add(job(to=["a@e.org", "b@e.org", "c@e.org"]))
        await until(dlq_has(client, 1))
        assert mailbox.recipients == ["a@e.org", "b@e.org"]
        (entry,) = await entries(client)
        assert (entry["lastFailureCode"], entry["failedAttempts"]) == ("550", 3)
        mailbox.always.clear()
        await Service(gateway.app).retry(["o-1"], actor=acting("test"))
        await until(dlq_has(client, 0))
    assert mailbox.recipients == ["a@e.org", "b@e.org", "c@e.org"]


async def test_every_address_of_a_text_gets_the_mail(settings: Settings, mailbox: Mailbox) -> None:
    async with running(settings) as gateway:
        await gateway.add(job("o-1", to="a@e.org, Bo <b@e.org>; c@e.org", cc='"d, e"@e.org, Ü <f@e.org>'))
        await until(lambda: len(mailbox.delivered) == 1)
        with pytest.raises(UsageError, match="is no address"):
            await gateway.add(job("o-2", to="a@example.com (c) x"))
    assert mailbox.recipients == ["a@e.org", "b@e.org", "c@e.org", '"d, e"@e.org', "f@e.org"]
    mime = email.message_from_bytes(mailbox.delivered[0][2], policy=default)
    assert [str(address) for address in mime["To"].addresses] == ["a@e.org", "Bo <b@e.org>", "c@e.org"]
    assert [address.addr_spec for address in mime["Cc"].addresses] == ['"d, e"@e.org', "f@e.org"]


async def test_bytes_that_are_no_job_are_buried_and_hold_up_nobody(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    async with running(settings) as gateway:
        await gateway.app.send("email:send", b"\xff\x00 not a job", id="broken")
        await gateway.app.send("email:send", {"outboxId": "x", "companyId": "acme"}, id="half", tenant="acme")
        await gateway.add(job())
        await until(lambda: len(mailbox.delivered) == 1)
        await until(dlq_has(client, 2))
    for entry in await entries(client):
        assert validate_dlq_entry(entry).lastFailureCode == "500"


async def test_adding_what_is_no_job_is_refused_and_queues_nothing(settings: Settings) -> None:
    async with EmailGateway(settings) as gateway:
        with pytest.raises(UsageError, match="is no address"):
            await gateway.add_all([job("o-1"), job("o-2", to="nobody")])
        assert await gateway.app.transport().depths() == {}


async def test_the_oldest_dead_letters_are_exported_before_they_are_trimmed(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    mailbox.always["ana@example.com"] = "550 no"
    settings = with_email(settings, dlq_max_size=3, rate=None, concurrency=1)
    async with running(settings) as gateway:
        await gateway.add_all([job(f"o-{number}") for number in range(5)])
        await until(dlq_has(client, 5))
    async with running(settings, upkeep=True):
        await until(dlq_has(client, 3))
    exported = _lines(Path(settings.of(EmailSettings).dlq_export))
    kept = {entry["jobId"] for entry in await entries(client)}
    trimmed = {line["letter"]["message"]["id"] for line in exported}
    assert len(trimmed) == 2
    assert kept | trimmed == {f"o-{number}" for number in range(5)}


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_after_the_cool_down_it_is_reprocessed_by_itself(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    mailbox.once["ana@example.com"] = ["421 busy"] * 5
    mailbox.always["bob@example.com"] = "550 no"
    settings = with_email(settings, cooldown=QUICK)
    async with running(settings, upkeep=True) as gateway:
        await gateway.add_all([job("o-1"), job("o-2", to="bob@example.com")])
        await until(lambda: mailbox.recipients == ["ana@example.com"])
        await until(dlq_has(client, 1))
        await until(lambda: has_states(gateway, resolved=1, pending=1))
    (entry,) = await entries(client)
    assert entry["jobId"] == "o-2"  # a permanent error waits for a person


async def test_a_company_with_many_jobs_does_not_delay_one_with_few(settings: Settings, mailbox: Mailbox) -> None:
    settings = with_email(settings, rate=None, concurrency=1)
    async with EmailGateway(settings) as producer:
        await producer.add_all([job(f"big-{number}", "big", to="big@e.org") for number in range(200)])
        await producer.add_all([job(f"small-{number}", "small", to="small@e.org") for number in range(3)])
    async with running(settings):
        await until(lambda: mailbox.recipients.count("small@e.org") == 3)
        place = mailbox.recipients.index("small@e.org")
    assert place <= 3


async def test_no_more_than_the_rate_allows(settings: Settings, mailbox: Mailbox) -> None:
    settings = with_email(settings, rate=4, rate_per=timedelta(minutes=10))
    async with running(settings) as gateway:
        await gateway.add_all([job(f"o-{number}") for number in range(10)])
        await until(lambda: len(mailbox.delivered) == 4)
    async with running(settings) as another:
        await another.add(job("o-10"))
        depths = await another.app.transport().depths()
    assert len(mailbox.delivered) == 4
    assert depths["email:send"].total == 7


async def test_a_company_id_of_10_kb_works_as_any_other(settings: Settings, mailbox: Mailbox, client: Client) -> None:
    company = "c" * 10_240
    mailbox.always["bob@example.com"] = "550 no"
    async with running(settings) as gateway:
        await gateway.add_all([job("o-1", company), job("o-2", company, to="bob@example.com")])
        await until(lambda: mailbox.recipients == ["ana@example.com"])
        await until(dlq_has(client, 1))
        await until(lambda: is_drained(gateway))
        turns = await turns_of(gateway.app.transport(), "email:send")
    (entry,) = await entries(client)
    assert entry["companyId"] == company
    assert [(one.company_id[:3], len(one.company_id), one.total_processed) for one in turns] == [("ccc", 100, 2)]


async def test_a_redis_without_memory_refuses_jobs_loudly_and_recovers_by_itself(
    settings: Settings, mailbox: Mailbox, start_server: StartsServer
) -> None:
    server = start_server(Redis)
    settings = with_email(settings, redis=server.url, rate=None)
    mailbox.data.append("hang")
    async with Client.from_url(server.url) as client, running(settings) as gateway:
        await gateway.add(job("o-1"))
        await mailbox.hanging.wait()
        await client.config_set("maxmemory", 1)
        with pytest.raises(TransportUnavailable, match="its memory is full"):
            await gateway.add(job("o-2"))
        mailbox.release.set()
        await until(lambda: is_drained(gateway))
        await client.config_set("maxmemory", 512 * 2**20)
        await gateway.add(job("o-3"))
        await until(lambda: len(mailbox.delivered) == 2)
    ids = [email.message_from_bytes(content)["Message-ID"] for _, _, content in mailbox.delivered]
    assert ids == ["<o-1@example.org>", "<o-3@example.org>"]
