"""Every type of AMQP survives whatever Redrive does with a message: another client reads it, and says the type."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiormq
import pamqp.decode
import pytest

from redrive import Policy, Redrive, immediate
from redrive.clock import SystemClock
from redrive.forensics.query import Query
from redrive.model import Release, Retry
from redrive.service import Service
from redrive.telemetry.events import MessageBuried
from redrive.testing.builders import make_failure
from redrive.testing.waiting import until
from redrive.transports.base import Delivery, Settlement
from redrive.transports.rabbitmq.fields import Field
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.properties import Properties
from redrive.transports.rabbitmq.publisher import Parcel, Publisher
from redrive.transports.rabbitmq.redrive import DeadMessages
from redrive.transports.rabbitmq.transport import RabbitTransport
from tests.actors import acting
from tests.trouble.helpers import Told, make_app, working
from tests.trouble.rabbitmq.work import PATIENCE

# As they are on the wire: the letter of the type, then the value. Whatever writes them here knows nothing of Redrive.
TYPES: dict[str, bytes] = {
    "t bool": b"t\1",
    "b byte": struct.pack(">cb", b"b", -7),
    "B unsigned byte": struct.pack(">cB", b"B", 200),
    "s short": struct.pack(">ch", b"s", -3000),
    "u unsigned short": struct.pack(">cH", b"u", 60000),
    "I int": struct.pack(">ci", b"I", -70000),
    "i unsigned int": struct.pack(">cI", b"i", 4_000_000_000),
    "l long": struct.pack(">cq", b"l", 5),
    "f float": struct.pack(">cf", b"f", 0.1),
    "d double": struct.pack(">cd", b"d", 0.87),
    "D decimal": struct.pack(">cBi", b"D", 2, 150),
    "S text": b"S\0\0\0\3\xc3\xa9!",
    "S that is no text": b"S\0\0\0\2\xff\xfe",
    "x binary": b"x\0\0\0\2\xff\xfe",
    "x that is text": b"x\0\0\0\4text",
    "T timestamp": struct.pack(">cQ", b"T", 1_700_000_000),
    "V void": b"V",
    "A array": b"A\0\0\0\6b\x01b\x02V" + b"V",
    "F table": b"F\0\0\0\x12" + b"\1af" + struct.pack(">f", 0.1) + b"\1bF\0\0\0\4\1cb\x09",
}
Way = Callable[..., Awaitable[None]]


@contextmanager
def saying_types() -> Iterator[None]:
    """The other client (aiormq, which reads with pamqp) says of each value also its type."""
    mapping = pamqp.decode.TABLE_MAPPING

    def typed(kind: bytes, value: bytes) -> Any:
        consumed, found = mapping[kind](value)
        return consumed, (kind.decode(), found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pamqp.decode, "TABLE_MAPPING", {kind: partial(typed, kind) for kind in mapping})
        yield


async def read_by_another(url: str, queue: str = "orders") -> dict[str, Any]:
    """The headers of the only message of a queue; it stays there."""
    async with aiormq.Connection(url.partition("?")[0]) as connection:
        channel = await connection.channel()
        with saying_types():
            got = await channel.basic_get(queue)
        await channel.basic_nack(got.delivery_tag or 0, requeue=True)
        return dict(got.header.properties.headers or {})


async def received(transport: RabbitTransport) -> Delivery:
    [delivery] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    return delivery


async def retried(transport: RabbitTransport, **_: Any) -> None:
    delivery = await received(transport)
    await transport.settle([Settlement(delivery, Retry(timedelta()), make_failure())])
    await transport.aclose()


async def released(transport: RabbitTransport, **_: Any) -> None:
    await transport.settle([Settlement(await received(transport), Release())])
    await transport.aclose()


async def delivered_before(transport: RabbitTransport, **_: Any) -> None:
    delivery = await received(transport)
    delivery.token.subscription.reject(delivery.token.tag, requeue=True)
    await received(transport)  # its copy
    await transport.aclose()


async def buried(url: str, place: Path, store: str = "memory://", bury: str = "store") -> Redrive:
    app: Redrive = make_app(place, transport=f"{url}&bury={bury}", store=store)
    told = Told(app)

    @app.handler("orders", policy=Policy(attempts=1, backoff=immediate()))
    async def handle(body: bytes) -> None:
        raise ValueError("broken")

    async with working(app):
        await until(lambda: bool(told.of(MessageBuried)), what="it is buried")
    return app


async def redriven(url: str, place: Path, **_: Any) -> None:
    await (await buried(url, place, bury="dlq")).aclose()
    dead = DeadMessages(options_of(url), SystemClock())
    await dead.redrive("orders", limit=1, by="ann")

    async def is_back() -> bool:
        return await dead.count("orders") == 1

    await until(is_back, what="it is back in its queue")
    await dead.aclose()


async def parked(url: str, place: Path, **_: Any) -> None:
    await (await buried(url, place, bury="dlq")).aclose()


async def replayed(url: str, place: Path, **_: Any) -> None:
    app = await buried(url, place, store=f"sqlite:///{place / 'letters.db'}")
    service = Service(app)
    await service.run_replay((await service.replay(Query(), every=True, actor=acting("test"))).id)
    await app.aclose()


@pytest.mark.parametrize("way", [retried, released, delivered_before, parked, redriven, replayed])
async def test_every_type_is_read_by_another_client_as_it_was_published(
    url: str, publisher: Publisher, transport: RabbitTransport, tmp_path: Path, way: Way
) -> None:
    headers = {name: Field(field) for name, field in TYPES.items()}
    await publisher.publish([Parcel("", "orders", Properties(message_id="m", headers=headers), b"body")])
    before = await read_by_another(url)
    assert before["d double"] == ("d", 0.87)
    assert before["F table"] == ("F", {"a": ("f", pytest.approx(0.1)), "b": ("F", {"c": ("b", 9)})})
    await way(transport=transport, url=url, place=tmp_path)
    after = await read_by_another(url, "orders.dlq" if way is parked else "orders")
    assert {name: after.get(name) for name in TYPES} == before
    if way is not redriven:  # RabbitMQ itself sorts the headers of what it moves
        assert [name for name in after if name in TYPES] == list(TYPES), "in the same order"
