"""The topology of the contract: as a file, on a live broker, and where it clashes with what is there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from msgspec.structs import replace

from redrive.errors import ConfigError, TransportUnavailable
from redrive.systems.files import DLQ_QUEUES, QUEUES
from redrive.systems.files.topology import topology
from redrive.transports.rabbitmq.definitions import as_text, definitions
from redrive.transports.rabbitmq.management import Clashes, Management
from redrive.transports.rabbitmq.topology import Exchange, Queue, Topology, declared, queue
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ

WANTED = declared(topology())


@pytest.fixture
def vhost(rabbitmq_server: RabbitMQ, request: pytest.FixtureRequest) -> str:
    name = f"v/{request.node.name}"[:60]
    for method in ("DELETE", "PUT"):
        try:
            _call(rabbitmq_server, method, f"vhosts/{quote(name, safe='')}")
        except OSError:
            assert method == "DELETE"
    return name


@pytest_asyncio.fixture
async def broker(rabbitmq_server: RabbitMQ, vhost: str) -> AsyncIterator[Management]:
    address = rabbitmq_server.management_url.replace("://", "://guest:guest@")
    management = Management(address, vhost=vhost)
    yield management
    await management.aclose()


def _call(server: RabbitMQ, method: str, path: str, body: Any = None) -> Any:
    return json.loads(web.call(method, f"{server.management_url}/api/{path}", body, GUEST) or "null")


# -- as a file ---------------------------------------------------------------------------------------------------


def test_every_queue_has_its_own_way_round() -> None:
    content = definitions(WANTED)
    queues = {one["name"]: one for one in content["queues"]}
    bindings = {(one["source"], one["routing_key"], one["destination"]) for one in content["bindings"]}
    assert len(queues) == 3 * len(QUEUES)
    for name in QUEUES:
        assert queues[name]["arguments"] == {
            "x-dead-letter-exchange": f"retry.{name}",
            "x-dead-letter-routing-key": "retry",
        }
        assert queues[f"{name}.retry"]["arguments"] == {
            "x-message-ttl": 15000,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": name,
        }
        assert queues[f"{name}.dlq"]["arguments"] == {}
        assert {(f"retry.{name}", "retry", f"{name}.retry"), (f"dlq.{name}", "parking", f"{name}.dlq")} <= bindings
    assert all(one["durable"] and not one["auto_delete"] for one in queues.values())
    kinds = {one["name"]: one["type"] for one in content["exchanges"]}
    assert {kinds.pop("domain.events"), kinds.pop("domain.commands")} == {"topic"}
    assert set(kinds.values()) == {"direct"}
    assert tuple(f"{name}.dlq" for name in QUEUES) == DLQ_QUEUES


def test_the_bindings_of_the_contract() -> None:
    bindings = {(one.queue, one.exchange, one.key) for one in WANTED.bindings if one.queue in QUEUES}
    assert bindings == {
        ("q.upload.commands", "domain.commands", "commands.upload.#"),
        ("q.upload.commands", "domain.commands", "commands.file.reprocess.*"),
        ("q.validator", "domain.events", "files.uploaded.*"),
        ("q.thumbnail", "domain.events", "files.validated.*"),
        ("q.extractor", "domain.events", "files.validated.*"),
        ("q.projection", "domain.events", "#"),
        ("q.notification", "domain.events", "processing.#"),
        ("q.notification", "domain.events", "files.rejected.*"),
        ("q.audit", "domain.events", "#"),
    }


def test_the_same_topology_is_the_same_file() -> None:
    turned = replace(topology(), queues=topology().queues[::-1], exchanges=topology().exchanges[::-1])
    assert as_text(definitions(WANTED)) == as_text(definitions(declared(turned)))


def test_a_ladder_has_a_queue_for_each_delay() -> None:
    content = declared(Topology((queue("q", delay=["30s", "1s", "5m"]),)))
    waits = {one.name: one.arguments["x-message-ttl"] for one in content.queues if "x-message-ttl" in one.arguments}
    assert waits == {"q.retry": 1000, "q.retry.1000": 1000, "q.retry.30000": 30_000, "q.retry.300000": 300_000}
    keys = {one.key: one.queue for one in content.bindings if one.exchange == "retry.q"}
    assert keys == {"retry": "q.retry", **{f"retry.{ms}": f"q.retry.{ms}" for ms in (1000, 30_000, 300_000)}}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda: Topology(()), "at least one"),
        (lambda: Topology((queue("q", bind=[("nowhere", "#")]),)), "'nowhere', which is not declared"),
        (lambda: Topology((queue(""),)), "no name of a queue"),
        (lambda: Topology((queue("ü" * 120),)), "no name of a queue"),
        (lambda: Topology((queue("amq.mine"),)), "belong to RabbitMQ"),
        (lambda: Topology((queue("q"), queue("q"))), "'q' is named twice"),
        (lambda: Topology((queue("q"), queue("q.dlq"))), "'q.dlq' is named twice"),
        (lambda: Topology((queue("q"),), (Exchange("retry.q"),)), "'retry.q' is named twice"),
        (lambda: Topology((queue("q"),), (Exchange("e", "tpoic"),)), "'tpoic': it is one of direct"),
        (lambda: Topology((Queue("q", delays=()),)), "has no delay"),
        (lambda: Topology((queue("q", delay="0s"),)), "1 ms to 49 days"),
        (lambda: Topology((queue("q", delay="90d"),)), "1 ms to 49 days"),
        (lambda: Topology((queue("q", delay=["1s", "1s"]),)), "same delay twice"),
        (lambda: Topology((queue("q", kind="quick"),)), "classic or quorum"),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        declared(given())


# -- on a broker -------------------------------------------------------------------------------------------------


async def test_what_is_missing_is_made_and_the_second_time_nothing_changes(broker: Management) -> None:
    before = await broker.difference(WANTED)
    assert len(before.missing) == len(WANTED.exchanges) + len(WANTED.queues) + len(WANTED.bindings)
    made = await broker.apply(WANTED)
    assert sorted(made) == sorted(before.missing)
    assert "binding domain.events --files.validated.*--> q.thumbnail" in made
    assert (await broker.difference(WANTED)).is_none
    assert await broker.apply(WANTED) == []


async def test_rabbitmq_loads_the_file_itself(broker: Management, rabbitmq_server: RabbitMQ, vhost: str) -> None:
    _call(rabbitmq_server, "POST", "definitions", json.loads(as_text(definitions(WANTED, vhost))))
    assert (await broker.difference(WANTED)).is_none
    exported = _call(rabbitmq_server, "GET", f"definitions/{quote(vhost, safe='')}")
    assert {one["name"] for one in exported["queues"]} == {one.name for one in WANTED.queues}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_quorum_queues_are_another_topology(broker: Management, kind: Any) -> None:
    mine = declared(Topology((queue("q.x", kind=kind, delay=["1s", "2s"]),)))
    await broker.apply(mine)
    assert (await broker.difference(mine)).is_none
    other = declared(Topology((queue("q.x", kind="quorum" if kind == "classic" else "classic", delay=["1s", "2s"]),)))
    clashes = (await broker.difference(other)).clashes
    assert any("x-queue-type" in one for one in clashes)


async def test_a_clash_is_told_before_anything_is_touched(
    broker: Management, rabbitmq_server: RabbitMQ, vhost: str
) -> None:
    place = quote(vhost, safe="")
    _call(rabbitmq_server, "PUT", f"queues/{place}/q.validator.retry", {"arguments": {"x-message-ttl": 1}})
    _call(rabbitmq_server, "PUT", f"exchanges/{place}/domain.events", {"type": "fanout", "durable": True})
    with pytest.raises(Clashes) as clash:
        await broker.apply(WANTED)
    text = str(clash.value)
    assert "exchange domain.events: kind is 'fanout', wanted 'topic'" in text
    assert "queue q.validator.retry: x-message-ttl is 1, wanted 15000" in text
    assert "queue q.validator.retry: x-dead-letter-routing-key is None, wanted 'q.validator'" in text
    assert [one["name"] for one in _call(rabbitmq_server, "GET", f"queues/{place}")] == ["q.validator.retry"]


async def test_a_binding_that_nobody_asked_for_is_told(
    broker: Management, rabbitmq_server: RabbitMQ, vhost: str
) -> None:
    await broker.apply(WANTED)
    place = quote(vhost, safe="")
    _call(rabbitmq_server, "POST", f"bindings/{place}/e/domain.events/q/q.thumbnail", {"routing_key": "#"})
    found = await broker.difference(WANTED)
    assert found.extra == ("binding domain.events --#--> q.thumbnail",)
    assert not found.missing
    assert not found.clashes


async def test_depths_of_queues_there_are_and_are_not(broker: Management) -> None:
    await broker.apply(WANTED)
    assert await broker.depths(["q.audit.dlq", "nobody.dlq"]) == {"q.audit.dlq": 0, "nobody.dlq": None}


async def test_a_management_api_that_is_not_there_or_refuses(rabbitmq_server: RabbitMQ) -> None:
    address = rabbitmq_server.management_url
    with pytest.raises(ConfigError, match="http://host:15672"):
        Management("amqp://localhost")
    cases: list[tuple[Management, type[Exception], str]] = [
        (Management("http://127.0.0.1:1"), TransportUnavailable, "127.0.0.1:1"),
        (Management(address.replace("://", "://guest:wrong@")), ConfigError, "refuses this user"),
        (Management(address, vhost="nowhere"), ConfigError, "no virtual host 'nowhere'"),
    ]
    for management, kind, says in cases:
        with pytest.raises(kind, match=says):
            await management.difference(WANTED)
        await management.aclose()
