"""SQS in trouble: a server that is killed, receipts that are no longer good, messages that nobody meant well."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Policy, constant, immediate
from redrive.clock import SystemClock
from redrive.doctor import examine
from redrive.model import Done, Message, Reason, Release, Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.waiting import until
from redrive.transports.base import ACCEPTED, SendStatus, Settlement
from redrive.transports.sqs import SqsTransport, open_transport
from tests.servers.elasticmq import ElasticMQ
from tests.servers.fixtures import StartsServer
from tests.trouble.helpers import make_app, until_empty, until_letters, working
from tests.trouble.sqs import new_prefix, others_client, private_url

LEASE = timedelta(seconds=30)


def opened(url: str) -> SqsTransport:
    return open_transport(url, clock=SystemClock(), lease=LEASE)


async def taken(transport: SqsTransport, number: int, source: str = "orders") -> list[Any]:
    got: list[Any] = []
    while len(got) < number:
        got += await asyncio.wait_for(transport.receive(source, number - len(got)), 60)
    return got


async def test_a_server_that_is_killed_under_load_and_comes_back_loses_nothing(
    start_server: StartsServer, tmp_path: Path
) -> None:
    server = start_server(lambda: ElasticMQ(durable=True))
    app = make_app(tmp_path, transport=private_url(server), store=f"sqlite:///{tmp_path / 'letters.db'}")
    done: Counter[str] = Counter()

    @app.handler("orders", policy=Policy(attempts=10, backoff=immediate()))
    async def handle(body: bytes, message: Message) -> None:
        await asyncio.sleep(0.005)
        done[message.id] += 1

    async with app:
        sent = [make_message(id=f"{number}") for number in range(200)]
        assert set(await app.transport().send(sent)) == {ACCEPTED}
        async with working(app):
            await until(lambda: len(done) > 20, what="the work has begun")
            server.kill9()
            server.launch()
            await asyncio.to_thread(server.wait_until_ready)
            server.let_pass(timedelta(seconds=31))  # the leases of what was in hand end
            await until(lambda: len(done) == 200, what="all of them are done")
            await until_empty(app)


async def test_nobody_there_is_busy_and_not_unknown(tmp_path: Path) -> None:
    transport = opened("sqs://x:x@127.0.0.1:9?tls=false&region=x")
    [answer] = await transport.send([make_message()])
    assert answer.status is SendStatus.BUSY
    await transport.aclose()


async def test_receipts_that_expire_in_the_middle_of_a_batch_are_lost_and_their_messages_are_not(
    elasticmq_server: ElasticMQ,
) -> None:
    url = private_url(elasticmq_server)
    first, other = opened(url), opened(url)
    await first.send([make_message(id=f"{n}") for n in range(12)])
    held = await taken(first, 12)
    elasticmq_server.let_pass(LEASE * 1.1)  # for the server alone: we still think that they are ours
    again = await taken(other, 12)
    assert {item.message.attempt for item in again} == {2}
    lost = await first.settle([Settlement(item, Retry(timedelta()), make_failure()) for item in held[:6]])
    lost = [*lost, *await first.settle([Settlement(item, Done()) for item in held[6:]])]
    assert await other.settle([Settlement(item, Release()) for item in again[:1]]) in ([], again[:1])
    left = {item.message.id for item in again[1:]} - {item.message.id for item in held if item not in lost}
    there = sum(depth.total for depth in (await other.depths()).values())
    assert there >= len(left), "a message is gone that nobody has settled"
    await first.aclose()
    await other.aclose()


async def test_what_others_send_is_handled_and_what_is_poisoned_is_a_letter(
    elasticmq_server: ElasticMQ, tmp_path: Path
) -> None:
    prefix = new_prefix()
    app = make_app(
        tmp_path,
        transport=private_url(elasticmq_server, prefix=prefix),
        store=f"sqlite:///{tmp_path / 'letters.db'}",
    )
    done: list[Message] = []

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: bytes, message: Message) -> None:
        done.append(message)

    poisons: dict[str, dict[str, Any]] = {
        "junk in our attribute": {"redrive": {"DataType": "Binary", "BinaryValue": b"\xc1junk"}},
        "a text as our attribute": {"redrive": {"DataType": "String", "StringValue": "us"}},
        "no base64": {"redrive-body": {"DataType": "String", "StringValue": "base64"}},
        "no encoding": {"redrive-body": {"DataType": "String", "StringValue": "rot13"}},
        "types": {"redrive-sqs-types": {"DataType": "String", "StringValue": "=,,a=Number,\u202e=x"}},
    }
    async with app, others_client(elasticmq_server) as client:
        queue = (await client.create_queue(QueueName=f"{prefix}orders"))["QueueUrl"]
        for body, attributes in poisons.items():
            await client.send_message(QueueUrl=queue, MessageBody=body, MessageAttributes=attributes)
        async with working(app):
            found = await until_letters(app, 2)
            await until(lambda: len(done) == 3, what="the others are handled")
        assert {letter.reason for letter in found} == {Reason.UNDECODABLE}
        assert {letter.message.body for letter in found} == {b"no base64", b"no encoding"}
        assert {message.body for message in done} == {body.encode() for body in poisons} - {
            b"no base64",
            b"no encoding",
        }


async def test_others_see_plain_bodies_and_headers_and_how_bytes_are_carried(elasticmq_server: ElasticMQ) -> None:
    prefix = new_prefix()
    transport = opened(private_url(elasticmq_server, prefix=prefix))
    plain = make_message(body='{"é": 1}'.encode(), headers=(("trace", b"t-1"), ("raw", b"\xff")))
    await transport.send([plain, make_message(source="bytes", body=b"\x00\xff")])
    async with others_client(elasticmq_server) as client:

        async def one(source: str) -> Any:
            url = (await client.get_queue_url(QueueName=f"{prefix}{source}"))["QueueUrl"]
            answer = await client.receive_message(QueueUrl=url, MessageAttributeNames=["All"], WaitTimeSeconds=5)
            return answer["Messages"][0]

        seen = await one("orders")
        assert seen["Body"] == '{"é": 1}'
        assert seen["MessageAttributes"]["trace"] == {"DataType": "String", "StringValue": "t-1"}
        assert seen["MessageAttributes"]["raw"] == {"DataType": "Binary", "BinaryValue": b"\xff"}
        seen = await one("bytes")
        assert seen["Body"] == "AP8="
        assert seen["MessageAttributes"]["redrive-body"]["StringValue"] == "base64"
    await transport.aclose()


async def test_more_headers_than_sqs_has_attributes_arrive_all_the_same(elasticmq_server: ElasticMQ) -> None:
    transport = opened(private_url(elasticmq_server))
    headers = tuple((f"h{number}", b"%d" % number) for number in range(25))
    await transport.send([make_message(headers=headers)])
    [delivery] = await taken(transport, 1)
    assert delivery.message.headers == headers
    await transport.aclose()


async def test_a_message_too_large_for_a_copy_is_retried_in_its_place(elasticmq_server: ElasticMQ) -> None:
    transport = opened(private_url(elasticmq_server))
    sent = make_message(body=b"x" * ((1 << 20) - 400))
    assert await transport.send([sent]) == [ACCEPTED]
    [delivery] = await taken(transport, 1)
    failure = make_failure(stack="y" * 2000)
    assert await transport.settle([Settlement(delivery, Retry(timedelta()), failure)]) == []
    [again] = await taken(transport, 1)
    assert (again.message.attempt, again.message.body == sent.body) == (2, True)
    await transport.aclose()


async def test_a_wait_longer_than_sqs_can_hold_a_message_back_is_kept(elasticmq_server: ElasticMQ) -> None:
    """By hops of fifteen minutes; what comes early goes on waiting, and no attempt is counted."""
    clock = SystemClock()
    transport = opened(private_url(elasticmq_server))
    await transport.send([make_message(not_before=clock.now() + timedelta(minutes=20))])
    elasticmq_server.let_pass(timedelta(minutes=16))  # for the server alone: it is early
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(transport.receive("orders", 1), 3)
    depth = (await transport.depths())["orders"]
    assert (depth.ready, depth.delayed) == (0, 1)
    await transport.aclose()


async def test_a_fifo_group_waits_behind_its_retry_and_other_groups_go_on(
    elasticmq_server: ElasticMQ, tmp_path: Path
) -> None:
    app = make_app(
        tmp_path,
        transport=private_url(elasticmq_server, "&fifo=yes"),
        store=f"sqlite:///{tmp_path / 'letters.db'}",
    )
    order: list[str] = []

    @app.handler("orders", policy=Policy(attempts=3, backoff=constant("1s")))
    async def handle(body: bytes, message: Message) -> None:
        if message.id == "a1" and message.attempt == 1:
            raise ConnectionError("not yet")
        order.append(message.id)

    async with app:
        sent = [make_message(id=f"{key}{n}", key=key.encode()) for n in range(1, 6) for key in "ab"]
        await app.transport().send(sent)
        async with working(app):
            await until(lambda: len(order) == 10, what="all are done")
        assert [id for id in order if id[0] == "a"] == [f"a{n}" for n in range(1, 6)]
        assert [id for id in order if id[0] == "b"] == [f"b{n}" for n in range(1, 6)]
        assert order.index("b1") < order.index("a1")


async def test_the_doctor_says_what_is_wrong_with_a_queue_and_how_to_mend_it(
    elasticmq_server: ElasticMQ, tmp_path: Path
) -> None:
    prefix = new_prefix()
    app = make_app(
        tmp_path,
        transport=private_url(elasticmq_server, "&create=no", prefix=prefix),
        store=f"sqlite:///{tmp_path / 'letters.db'}",
    )

    @app.handler("orders", policy=Policy(attempts=5, timeout="10m"))
    async def handle(body: bytes) -> None: ...

    @app.handler("missing")
    async def missing(body: bytes) -> None: ...

    async with app, others_client(elasticmq_server) as client:
        await client.create_queue(QueueName=f"{prefix}dlq")
        arn = f"arn:aws:sqs:elasticmq:000000000000:{prefix}dlq"
        policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}'
        await client.create_queue(QueueName=f"{prefix}orders", Attributes={"RedrivePolicy": policy})
        found = {finding.text: finding for finding in (await examine(app)).findings if "queue" in finding.text}
    said = " | ".join(found)
    assert f"there is no queue {prefix}missing" in said
    assert "maxReceiveCount 1" in said
    assert "visibility timeout of 30 s" in said
    assert all(finding.mend for finding in found.values())
