"""SQS on moto, which is not ElasticMQ; and what AWS says that neither does: throttled, denied, some of a batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from redrive.clock import SystemClock
from redrive.errors import TransportUnavailable
from redrive.model import Done, Release, Retry
from redrive.testing.builders import make_failure, make_message
from redrive.transports.base import ACCEPTED, SendStatus, Settlement
from redrive.transports.sqs import SqsTransport, open_transport
from tests.servers.moto import Moto
from tests.trouble.sqs import new_prefix
from tests.trouble.sqs_gate import Gate, gate_before

LEASE = timedelta(seconds=60)


@asynccontextmanager
async def opened(url: str, options: str = "") -> AsyncIterator[SqsTransport]:
    given = f"{url}&prefix={new_prefix()}&wait=1s{options}"
    transport = open_transport(given, clock=SystemClock(), lease=LEASE)
    try:
        yield transport
    finally:
        await transport.aclose()


async def taken(transport: SqsTransport, number: int) -> list[Any]:
    got: list[Any] = []
    while len(got) < number:
        got += await asyncio.wait_for(transport.receive("orders", number - len(got)), 60)
    return got


async def in_hand(transport: SqsTransport) -> int:
    return (await transport.depths())["orders"].total


@pytest.mark.parametrize("options", ["", "&fifo=yes"])
async def test_what_is_sent_to_moto_is_received_retried_and_done(moto_server: Moto, options: str) -> None:
    headers = tuple((f"h{number}", b"%d" % number) for number in range(14))  # SQS has ten attributes
    bodies = [b'{"a": 1}', "é\N{SNOWMAN}".encode(), b"\x00\x0b\xff", b"", b"\xef\xbf\xbf", b"x" * 256 * 1024]
    sent = [
        make_message(id=f"{number}", body=body, headers=headers, key=b"k%d" % number)
        for number, body in enumerate(bodies)
    ]
    async with opened(moto_server.url, options) as transport:
        assert list(await transport.send(sent)) == [ACCEPTED] * len(sent)
        got = {delivery.message.id: delivery for delivery in await taken(transport, len(sent))}
        assert {id: delivery.message.body for id, delivery in got.items()} == {
            message.id: message.body for message in sent
        }
        assert {delivery.message.headers for delivery in got.values()} == {headers}
        again, *rest = got.values()
        assert await transport.settle([Settlement(delivery, Done()) for delivery in rest]) == []
        assert await transport.settle([Settlement(again, Retry(timedelta()), make_failure())]) == []
        [second] = await taken(transport, 1)
        assert (second.message.id, second.message.attempt) == (again.message.id, 2)
        assert await transport.settle([Settlement(second, Done())]) == []
        assert await in_hand(transport) == 0


async def test_a_group_comes_in_order_though_its_first_message_is_given_back(moto_server: Moto) -> None:
    async with opened(moto_server.url, "&fifo=yes") as transport:
        await transport.send([make_message(id=f"{number}", key=b"one") for number in range(5)])
        first = await taken(transport, 1)
        assert await transport.settle([Settlement(first[0], Release())]) == []
        order: list[str] = []
        while len(order) < 5:
            for delivery in await asyncio.wait_for(transport.receive("orders", 1), 60):
                order.append(delivery.message.id)
                await transport.settle([Settlement(delivery, Done())])
        assert order == ["0", "1", "2", "3", "4"]


async def test_a_queue_that_is_missing_and_not_to_be_made_is_named(moto_server: Moto) -> None:
    async with opened(moto_server.url, "&create=no") as transport:
        [answer] = await transport.send([make_message()])
        assert answer.status is SendStatus.BUSY
        assert "queue" in answer.why.lower()
        with pytest.raises(TransportUnavailable, match=r"(?i)queue"):
            await transport.receive("orders", 1)


@pytest.mark.parametrize(
    ("code", "fault", "status"),
    [
        ("InvalidMessageContents", True, SendStatus.REFUSED),
        ("InternalError", False, SendStatus.UNKNOWN),
        ("RequestThrottled", True, SendStatus.BUSY),
    ],
)
async def test_each_message_of_a_batch_has_its_own_answer(
    moto_server: Moto, code: str, fault: bool, status: SendStatus
) -> None:
    async with gate_before(moto_server.endpoint) as gate, opened(gate.url) as transport:
        await transport.send([make_message(id="first")])
        gate.spoils["SendMessageBatch"] = ([1, 3], code, fault)
        answers = await transport.send([make_message(id=f"{number}") for number in range(5)])
        assert [answer.status for answer in answers] == [
            SendStatus.ACCEPTED if number in (0, 2, 4) else status for number in range(5)
        ]
        assert code in answers[1].why
        assert {delivery.message.id for delivery in await taken(transport, 4)} == {"first", "0", "2", "4"}


async def test_what_could_not_be_deleted_for_now_is_deleted_when_it_is_settled_again(moto_server: Moto) -> None:
    async with gate_before(moto_server.endpoint) as gate, opened(gate.url) as transport:
        await transport.send([make_message(id=f"{number}") for number in range(5)])
        held = [Settlement(delivery, Done()) for delivery in await taken(transport, 5)]
        gate.spoils["DeleteMessageBatch"] = ([0, 2], "InternalError", False)
        with pytest.raises(TransportUnavailable, match="InternalError"):
            await transport.settle(held)
        assert await in_hand(transport) == 2
        assert await transport.settle(held) == []
        assert await in_hand(transport) == 0


async def test_a_receipt_that_sqs_refuses_is_lost_and_the_others_are_settled(moto_server: Moto) -> None:
    async with gate_before(moto_server.endpoint) as gate, opened(gate.url) as transport:
        await transport.send([make_message(id=f"{number}") for number in range(3)])
        held = await taken(transport, 3)
        gate.spoils["DeleteMessageBatch"] = ([1], "ReceiptHandleIsInvalid", True)
        assert await transport.settle([Settlement(delivery, Done()) for delivery in held]) == [held[1]]
        assert await in_hand(transport) == 1


async def test_copies_of_which_some_are_not_taken_leave_each_message_once(moto_server: Moto) -> None:
    async with gate_before(moto_server.endpoint) as gate, opened(gate.url) as transport:
        await transport.send([make_message(id=f"{number}") for number in range(4)])
        retried = [Settlement(item, Retry(timedelta()), make_failure()) for item in await taken(transport, 4)]
        gate.spoils["SendMessageBatch"] = ([0, 1], "RequestThrottled", True)
        with pytest.raises(TransportUnavailable, match="RequestThrottled"):
            await transport.settle(retried)
        assert await in_hand(transport) == 4
        assert await transport.settle(retried) == []
        again = await taken(transport, 4)
        assert sorted((item.message.id, item.message.attempt) for item in again) == [(f"{n}", 2) for n in range(4)]
        assert await in_hand(transport) == 4


def says(gate: Gate, status: int, code: str) -> None:
    gate.refuses = lambda action, request: (status, {"__type": f"com.amazonaws.sqs#{code}", "message": action})


async def test_throttling_and_missing_rights_are_busy_and_say_so(moto_server: Moto) -> None:
    async with gate_before(moto_server.endpoint) as gate, opened(gate.url) as transport:
        await transport.send([make_message(id="before")])
        for status, code in ((400, "RequestThrottled"), (400, "AccessDeniedException"), (503, "ServiceUnavailable")):
            says(gate, status, code)
            [answer] = await transport.send([make_message()])
            assert answer.status is (SendStatus.UNKNOWN if status == 503 else SendStatus.BUSY)
            assert code in answer.why
            with pytest.raises(TransportUnavailable, match=code):
                await transport.receive("orders", 1)
        gate.refuses = lambda action, request: None
        [delivery] = await taken(transport, 1)
        assert delivery.message.id == "before"
