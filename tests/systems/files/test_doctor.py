"""What the doctor says of a real RabbitMQ: its topology, and what it could not look at.

Its alarms are in tests/trouble/rabbitmq/test_broker.py, which has a broker of its own for them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.doctor import Finding, Level, examine
from redrive.systems.files.settings import FilesSettings
from tests.servers import web
from tests.servers.rabbitmq import GUEST
from tests.systems.files.conftest import Broker

DELAY = timedelta(milliseconds=200)


def app_of(url: str, *sources: str) -> Redrive:
    app = Redrive(transport=url, store="memory://")
    for source in sources:
        app.handler(source)(_ignore)
    return app


async def _ignore(body: bytes) -> None:
    return None


async def of_transport(url: str, *sources: str) -> list[Finding]:
    async with app_of(url, *sources) as app:
        return [one for one in (await examine(app)).findings if one.about == "transports.default"]


async def of_files(broker: Broker, **more: Any) -> list[Finding]:
    known: dict[str, Any] = {"url": broker.url.partition("?")[0], "management": broker.server.management_url, **more}
    settings = Settings(
        store="memory://", transports={"default": "memory://"}, sections=(FilesSettings(delay=DELAY, **known),)
    )
    async with Redrive(settings=settings) as app:
        return [one for one in (await examine(app)).findings if one.about == "files.url"]


def delete(broker: Broker, path: str) -> None:
    web.call("DELETE", f"{broker.server.management_url}/api/{path}", credentials=GUEST)


@pytest.fixture
def url(broker: Broker) -> str:
    """Of a transport in the same virtual host, with a queue that was used."""
    management = quote(broker.server.management_url, safe="")
    return f"{broker.url.partition('?')[0]}?delay=200ms&management={management}"


async def test_a_transport_that_is_well(url: str) -> None:
    async with app_of(url) as app:
        await app.send("orders", 1)
    answers, well = await of_transport(url, "orders", "unused")
    assert (answers.level, well.level) == (Level.FINE, Level.FINE)
    assert "no alarm, and 2 queues" in well.text


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("queues/{}/orders.dlq", "queue orders.dlq, binding dlq.orders --parking--> orders.dlq"),
        ("exchanges/{}/retry.orders", "exchange retry.orders, binding retry.orders --retry--> orders.retry"),
        ("bindings/{}/e/retry.orders/q/orders.retry/retry", "binding retry.orders --retry--> orders.retry"),
    ],
)
async def test_a_part_that_is_missing(broker: Broker, url: str, part: str, named: str) -> None:
    async with app_of(url) as app:
        await app.send("orders", 1)
    delete(broker, part.format(broker.vhost))
    [found] = [one for one in await of_transport(url, "orders") if one.level is Level.FAILURE]
    assert f"not on the broker: {named}:" in found.text
    assert found.mend == "start a worker: it makes them"


async def test_a_queue_of_somebody_else_needs_only_what_is_used_of_it(broker: Broker, url: str) -> None:
    async with app_of(url) as app:
        await app.send("orders", 1)
    delete(broker, f"queues/{broker.vhost}/orders.dlq")
    other = url.replace("delay=200ms", "delay=1h")
    assert not [one for one in await of_transport(f"{other}&declare=no", "orders") if one.level is not Level.FINE]
    [found] = [
        one for one in await of_transport(f"{other}&declare=no&bury=dlq", "orders") if one.level is Level.FAILURE
    ]
    assert "queue orders.dlq" in found.text
    assert "declare=no" in found.mend


async def test_arguments_that_clash(url: str) -> None:
    async with app_of(url) as app:
        await app.send("orders", 1)
    [found] = [one for one in await of_transport(url.replace("200ms", "1h"), "orders") if one.level is Level.FAILURE]
    assert "queue orders.retry: x-message-ttl is 200, wanted 3600000" in found.text


async def test_without_a_management_api_what_is_missing_is_told_all_the_same(broker: Broker, url: str) -> None:
    async with app_of(url) as app:
        await app.send("orders", 1)
    delete(broker, f"queues/{broker.vhost}/orders.dlq")
    blind = f"{url.partition('&')[0]}&management={quote('http://127.0.0.1:1', safe='')}"
    found = {one.level: one for one in await of_transport(blind, "orders")}
    assert "not on the broker: queue orders.dlq:" in found[Level.FAILURE].text
    assert "could not be looked at" in found[Level.WARNING].text
    assert "rabbitmq_management" in found[Level.WARNING].mend


async def test_the_files_and_their_broker(broker: Broker) -> None:
    assert [one.level for one in await of_files(broker)] == [Level.FINE]
    place = f"{broker.server.management_url}/api/bindings/{broker.vhost}/e/domain.events/q/q.audit"
    web.call("POST", place, {"routing_key": "more.#"}, credentials=GUEST)
    delete(broker, f"queues/{broker.vhost}/q.audit.dlq")
    told = {one.level: one for one in await of_files(broker)}
    assert "queue q.audit.dlq" in told[Level.FAILURE].text
    assert "redrive files import" in told[Level.FAILURE].mend
    assert "binding domain.events --more.#--> q.audit" in told[Level.WARNING].text
    [clash] = [one for one in await of_files(broker, kind="quorum") if "q.thumbnail:" in one.text]
    assert "x-queue-type is None, wanted 'quorum'" in clash.text


async def test_a_broker_that_is_not_there_or_has_no_such_host(broker: Broker) -> None:
    [away] = await of_files(broker, url="amqp://127.0.0.1:1/")
    [nowhere] = await of_files(broker, url=f"{broker.server.url}nowhere")
    assert (away.level, nowhere.level) == (Level.FAILURE, Level.FAILURE)
    assert "127.0.0.1:1" in away.text
    [refused] = await of_transport(broker.server.url.replace("guest:guest", "guest:wrong"))
    assert "refuses this user" in refused.text
