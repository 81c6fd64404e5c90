"""The keys that the runbook of the contract asks Redis for, and what an entry of the DLQ costs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace
from redis.asyncio import Redis as Client

from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import Letter, letter_id
from redrive.service import Service
from redrive.systems.email import EmailGateway
from redrive.testing.waiting import until
from tests.actors import acting
from tests.systems.email.jobs import job
from tests.systems.email.mailserver import Mailbox
from tests.systems.email.world import dlq_has, is_drained, running, with_email


async def counts(client: Client) -> tuple[int, int, int]:
    """ZCARD bull:email:send:wait, active, delayed."""
    found = [await client.zcard(f"bull:email:send:{name}") for name in ("wait", "active", "delayed")]
    return found[0], found[1], found[2]


async def scanned(client: Client) -> set[str]:
    """redis-cli --scan --pattern 'bull:email:send:dlq:*'"""
    return {key.decode() async for key in client.scan_iter("bull:email:send:dlq:*")}


async def test_zcard_of_wait_active_and_delayed_is_what_there_is(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    day = timedelta(days=1)
    settings = with_email(settings, concurrency=1, base_delay=day, max_delay=day, ttl=3 * day)
    async with EmailGateway(settings) as producer:
        await producer.add_all([job(f"o-{n}", f"company-{n % 3}") for n in range(6)])
        await producer.add(job("o-6", to="bob@example.com"))
        await producer.add(job("o-0"))
    assert await counts(client) == (7, 0, 0)
    assert set(await _members(client, "wait")) == {f"o-{n}" for n in range(7)}
    mailbox.data.append("hang")
    mailbox.always["ana@example.com"] = "421 busy"
    async with running(settings) as gateway:
        await mailbox.hanging.wait()
        depth = (await gateway.app.transport().depths())["email:send"]
        assert await counts(client) == (depth.ready, depth.leased, depth.delayed)
        assert (depth.leased, depth.total) == (1, 7)
        mailbox.release.set()
        await until(lambda: _is(client, (0, 0, 6)), what="the others wait for their retry")
    assert len(await _members(client, "delayed")) == 6


async def _members(client: Client, name: str) -> list[str]:
    found: Any = await client.zrange(f"bull:email:send:{name}", 0, -1)
    return [member.decode() for member in found]


async def _is(client: Client, wanted: tuple[int, int, int]) -> bool:
    return await counts(client) == wanted


async def test_the_mirror_is_made_of_what_is_there_and_goes_when_it_is_not_wanted(
    settings: Settings, client: Client
) -> None:
    async with EmailGateway(with_email(settings, mirror="")) as plain:
        await plain.add_all([job(f"o-{n}", f"company-{n % 3}") for n in range(5)])
        await plain.app.transport().receive("email:send", 2)
    assert await counts(client) == (0, 0, 0)
    async with EmailGateway(settings) as mirrored:
        await mirrored.add(job("o-5"))
    assert await counts(client) == (4, 2, 0)
    async with EmailGateway(with_email(settings, mirror="")) as plain:
        await plain.add(job("o-6"))
    assert await counts(client) == (0, 0, 0)


async def test_each_entry_of_the_dlq_has_a_key_of_its_own(settings: Settings, mailbox: Mailbox, client: Client) -> None:
    mailbox.always |= {"ana@example.com": "550 no", "bob@example.com": "550 no"}
    ids = ["o-1", "with space: and ü", "x" * 300]
    async with running(settings) as gateway:
        await gateway.add_all([job(id) for id in ids])
        await gateway.add(job("bob", to="bob@example.com"))
        await until(dlq_has(client, 4))
        assert await scanned(client) == {f"bull:email:send:dlq:{id}" for id in (*ids, "bob")}
        del mailbox.always["ana@example.com"]
        await Service(gateway.app).retry(ids, actor=acting("test"))
        await until(dlq_has(client, 1))
        await until(lambda: is_drained(gateway))
        assert await scanned(client) == {"bull:email:send:dlq:bob"}
        letters = gateway.app.store.letters
        await letters.prune(Query(), limit=10)
    assert await scanned(client) == set()


async def test_an_entry_of_a_job_of_1100_bytes_costs_no_more_than_3_kb(
    settings: Settings, mailbox: Mailbox, client: Client
) -> None:
    number = 200  # a small sorted set is kept in another way
    mailbox.always["ana@example.com"] = "450 4.2.1 Mailbox busy, try again later"
    async with running(settings) as gateway:
        await gateway.add(job(f"{0:036}", f"{0:036}", text="x" * 909))
        await until(dlq_has(client, 1))
        letters = gateway.app.store.letters
        (one,) = (await letters.search(Query())).letters
        assert (len(one.message.body), len(one.failures)) == (1100, 5)
        await letters.record([_like(one, n) for n in range(1, number)])
    keys = [key async for key in client.scan_iter("*dlq*")]
    total = sum([await client.memory_usage(key, samples=0) or 0 for key in keys])
    assert total / number <= 3 * 1024


def _like(letter: Letter, number: int) -> Letter:
    """The letter of another job of another company, which fared the same."""
    id, company = f"{number:036}", f"{number % 5:036}"
    body = letter.message.body.replace(letter.message.id.encode(), id.encode(), 1)
    message = replace(letter.message, id=id, tenant=company, body=body)
    return replace(letter, id=letter_id(message.source, id), message=message)
