"""Workers that die, stop or hold messages for too long; messages that are deadly, and those beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from redrive.clock import SystemClock
from redrive.errors import TransportUnavailable
from redrive.forensics.query import Query
from redrive.model import Done, Reason, Release, Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from redrive.transports.base import Delivery, SendStatus, Settlement
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport
from tests.servers.rabbitmq import RabbitMQ
from tests.trouble.rabbitmq.test_replays import limit_queue, unlimit_queue
from tests.trouble.rabbitmq.work import LEASE, PATIENCE, Victim, Work

StartsVictim = Callable[[], Victim]

# -- leases and copies ------------------------------------------------------------------------------------------------


async def test_a_lease_that_ends_while_its_copy_is_made_breaks_nothing(transport: RabbitTransport) -> None:
    await transport.send([make_message(id="m-1"), make_message(id="m-2")])
    [first] = await transport.receive("orders", 1)
    [second] = await transport.receive("orders", 1)
    subscription = first.token.subscription
    copying = asyncio.create_task(transport.settle([Settlement(first, Retry(timedelta()), make_failure())]))
    await asyncio.sleep(0)
    subscription.reject(first.token.tag, requeue=True)  # as the sweep does
    await copying
    await transport.settle([Settlement(second, Done())])
    came = [one for _ in range(2) for one in await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)]
    assert [one.message.id for one in came] == ["m-1", "m-1"], "a repeat, and the channel still lives"
    assert subscription.closed is None


async def test_a_redelivery_that_cannot_be_counted_yet_is_counted_later(
    rabbitmq_server: RabbitMQ, vhost: str, transport: RabbitTransport, url: str
) -> None:
    """Its copy is refused while the queue is full; it is not lost, and others do not overtake its count."""
    narrow = open_transport(f"{url}&prefetch=1", clock=SystemClock(), lease=LEASE)
    await narrow.send([make_message(id="m-1")])
    [first] = await narrow.receive("orders", 1)
    limit_queue(rabbitmq_server, vhost, "orders")

    async def is_full() -> bool:
        [result] = await transport.send([make_message(id="fills it")])
        return result.status is not SendStatus.ACCEPTED

    await until(is_full, what="the queue takes no more")
    first.token.subscription.reject(first.token.tag, requeue=True)  # as the sweep does
    with pytest.raises(TransportUnavailable, match="the queue may be at its limit"):
        await asyncio.wait_for(narrow.receive("orders", 1), PATIENCE)
    unlimit_queue(rabbitmq_server, vhost, "orders")
    await until(lambda: _takes(transport), what="the queue takes messages again")
    again = await _next(narrow, "m-1")
    assert (again.message.attempt, again.redelivered) == (1, True)
    await narrow.aclose()


async def _takes(transport: RabbitTransport) -> bool:
    [result] = await transport.send([make_message(id="after")])
    return result.status is SendStatus.ACCEPTED


async def _next(transport: RabbitTransport, id: str) -> Delivery:
    """The next of that id; others are done on the way."""
    while True:
        for delivery in await asyncio.wait_for(transport.receive("orders", 1), PATIENCE):
            if delivery.message.id == id:
                return delivery
            await transport.settle([Settlement(delivery, Done())])


async def test_a_worker_that_stops_in_the_stream_counts_nothing_against_what_it_did_not_begin(
    transport: RabbitTransport, url: str
) -> None:
    await transport.send([make_message(id=f"{n}") for n in range(2000)])
    other = open_transport(f"{url}&prefetch=1000", clock=SystemClock(), lease=LEASE)
    some = await other.receive("orders", 10)
    await other.settle([Settlement(one, Done()) for one in some])
    await other.aclose()
    seen: dict[str, tuple[int, bool]] = {}
    while len(seen) < 2000 - len(some):
        for one in await asyncio.wait_for(transport.receive("orders", 500), PATIENCE):
            seen[one.message.id] = (one.message.attempt, one.redelivered)
            await transport.settle([Settlement(one, Done())])
    assert set(seen.values()) == {(1, False)}


async def test_what_outlived_its_lease_is_handed_out_with_nothing_taken_ahead(url: str) -> None:
    """It was in a worker's hands, so it is to blame, and so may be what was held beside it."""
    clock, held = ManualClock(), 0
    transport = open_transport(url, clock=clock, lease=LEASE)
    await transport.send([make_message(id=f"{n}") for n in range(3)])
    while held < 3:
        held += len(await asyncio.wait_for(transport.receive("orders", 3), PATIENCE))
    await clock.advance(1.1 * LEASE.total_seconds())
    for _ in range(3):
        [again] = await asyncio.wait_for(transport.receive("orders", 3), PATIENCE)
        assert (again.message.attempt, again.redelivered, again.perhaps_untried) == (2, True, False)
    await transport.aclose()


# -- messages that take their worker down ------------------------------------------------------------------------------


async def test_a_message_that_kills_its_worker_every_time_becomes_a_letter(
    transport: RabbitTransport, start_victim: StartsVictim, url: str
) -> None:
    """Twice it might have been only taken ahead; from then on it counts."""
    await transport.send([make_message(id="deadly")])
    for deaths, attempt in enumerate((1, 1, 1, 2, 3)):
        victim = start_victim()
        [delivery] = await asyncio.wait_for(victim.transport.receive("orders", 1), PATIENCE)
        assert (delivery.message.attempt, delivery.redelivered) == (attempt, deaths > 0)
        await victim.die()
    work = Work(url, attempts=3)
    letters = work.app.store.letters

    async def buried() -> bool:
        return await letters.count(Query()) == 1

    await until(buried, what="it is a letter")
    [letter] = (await letters.search(Query())).letters
    assert (letter.message.id, letter.reason) == ("deadly", Reason.CRASHED)
    assert not work.done
    await work.end()


async def test_a_deadly_message_takes_no_innocent_one_along(
    transport: RabbitTransport, start_victim: StartsVictim
) -> None:
    """Each worker dies with what it has in its hands, and had taken ahead much more."""
    await transport.send([make_message(id="deadly"), *(make_message(id=f"{n}") for n in range(60))])
    for _ in range(4):
        victim = start_victim()
        while True:
            some = await asyncio.wait_for(victim.transport.receive("orders", 10), PATIENCE)
            if any(one.message.id == "deadly" for one in some):
                break
            await victim.transport.settle([Settlement(one, Release()) for one in some])
        await victim.die()
    attempts: dict[str, int] = {}
    while len(attempts) < 61:
        for one in await asyncio.wait_for(transport.receive("orders", 10), PATIENCE):
            attempts[one.message.id] = one.message.attempt
            await transport.settle([Settlement(one, Done())])
    assert attempts.pop("deadly") == 3
    assert set(attempts.values()) == {1}, "who was only taken ahead has not been tried"


async def test_what_only_came_back_is_not_handled_one_by_one(
    transport: RabbitTransport, start_victim: StartsVictim, url: str
) -> None:
    """Each has one attempt, so each is on its last; but the first time means nothing."""
    await transport.send([make_message(id=f"{n}") for n in range(20)])
    victim = start_victim()
    await victim.transport.receive("orders", 1)

    async def nothing_is_left() -> bool:
        return not await transport.depths()

    await until(nothing_is_left, what="all are taken ahead")
    await victim.die()
    work = Work(url, attempts=1, together=5)
    await work.until(lambda: len(work.done) == 20, "all are handled, some at once")
    assert set(work.attempts) == {1}
    await work.end()
