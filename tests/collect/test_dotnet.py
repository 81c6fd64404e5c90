"""Error queues of MassTransit and NServiceBus, with the headers that their documentation names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pytest

from redrive.collect.dotnet import masstransit, nservicebus
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from redrive.testing.builders import make_message
from redrive.testing.clock import START
from tests.actors import acting
from tests.cli.world import Shell
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.trouble.helpers import letters, make_app

FAULT = {
    "MT-Reason": "fault",
    "MT-Fault-ExceptionType": "System.TimeoutException",
    "MT-Fault-Message": "The operation has timed out.",
    "MT-Fault-Timestamp": "2024-05-01T10:00:00.1234567Z",
    "MT-Fault-StackTrace": "   at Shop.ChargeConsumer.Consume(ConsumeContext`1 context)",
    "MT-Fault-ConsumerType": "Shop.ChargeConsumer",
    "MT-Fault-RetryCount": 2,
    "MT-Fault-InputAddress": "rabbitmq://rabbit/shop/charge-card?durable=true",
    "MT-Host-MachineName": "host-7",
    "MT-Host-ProcessId": "31",
}
EXCEPTION = {
    "NServiceBus.ExceptionInfo.ExceptionType": "System.UnauthorizedAccessException",
    "NServiceBus.ExceptionInfo.InnerExceptionType": "System.Exception",
    "NServiceBus.ExceptionInfo.Message": "Access to the path is denied.",
    "NServiceBus.ExceptionInfo.Source": "Shop",
    "NServiceBus.ExceptionInfo.StackTrace": "System.UnauthorizedAccessException: Access\n   at Shop.Ship.Handle()",
    "NServiceBus.FailedQ": "shipping",
    "NServiceBus.TimeOfFailure": "2024-05-01 10:00:00:123456 Z",
    "NServiceBus.ProcessingMachine": "host-8",
}
AT = datetime(2024, 5, 1, 10, 0, 0, 123456, UTC)
THEIRS = {"MT-Fault-Address": "rabbitmq://rabbit/shop/faults", "NServiceBus.MessageIntent": "Send", "trace": "1"}


@pytest.fixture
def url(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    name = f"dotnet-{uuid4().hex[:12]}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{name}"
    web.call("PUT", place, credentials=GUEST)
    yield f"{rabbitmq_server.url.rstrip('/')}/{name}"
    web.call("DELETE", place, credentials=GUEST)


def bury(url: str, queue: str, dead: str, body: bytes, headers: dict[str, Any]) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel: Any = connection.channel()
        for name in (queue, dead):
            channel.queue_declare(name, durable=True)
        properties = pika.BasicProperties(message_id=f"of-{queue}", headers={**THEIRS, **headers}, delivery_mode=2)
        channel.basic_publish("", dead, body, properties)


@pytest.mark.parametrize(
    ("dead", "queue", "headers", "said"),
    [
        ("charge-card_error", "charge-card", FAULT, ("System.TimeoutException", 3, "host-7")),
        ("error", "shipping", EXCEPTION, ("System.UnauthorizedAccessException", 1, "host-8")),
    ],
    ids=["MassTransit", "NServiceBus"],
)
async def test_their_error_queue_is_understood_and_goes_back_without_their_counts(
    dead: str, queue: str, headers: dict[str, Any], said: tuple[str, int, str], url: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'letters.db'}"
    bury(url, queue, dead, b"{}", headers)
    Shell(tmp_path).process("--store", store, "collect", f"{url}/{dead}", "--allow-source", queue)
    async with make_app(tmp_path, transport=f"{url}?declare=no", store=store) as app:
        (letter,) = await letters(app)
        assert (letter.message.source, letter.message.id, letter.foreign) == (queue, f"of-{queue}", True)
        assert (letter.last.type, letter.last.attempt, letter.last.worker) == said
        assert (letter.last.at, "at Shop." in letter.last.stack) == (AT, True)
        assert {name for name, _ in letter.message.headers if not name.startswith("redrive")} == THEIRS.keys()
        app.declare(queue)
        service = Service(app)
        await service.run_replay((await service.replay(Query(), every=True, actor=acting("test"))).id)
        assert [letter.state for letter in await letters(app)] == [State.SENT]
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        _, back, body = connection.channel().basic_get(queue, auto_ack=True)
        assert (body, back.message_id) == (b"{}", f"of-{queue}")
        assert {name: back.headers[name] for name in back.headers if not name.startswith("redrive")} == THEIRS


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"9" * 400, b"::::", b"2024-99-99 10:00:00:1 Z", b"0001-01-01"])
def test_whatever_stands_in_their_headers_is_a_failure_all_the_same(value: bytes) -> None:
    for names, read in ((FAULT, masstransit), (EXCEPTION, nservicebus)):
        said = read(make_message(headers=tuple((name, value) for name in names)), START)
        assert said is not None
        assert said.failure.attempt >= 1
        assert said.failure.at.tzinfo is not None
    assert masstransit(make_message(headers=(("MT-Fault-Address", value),)), START) is None
    assert nservicebus(make_message(headers=(("NServiceBus.MessageId", value),)), START) is None
