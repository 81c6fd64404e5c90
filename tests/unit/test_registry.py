"""Which backend a URL means."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from redrive import Redrive, registry
from redrive.config.settings import Settings
from redrive.errors import ConfigError
from redrive.registry import open_store, open_transport
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore
from redrive.testing.clock import ManualClock
from redrive.transports.base import Transport
from redrive.transports.memory import MemoryTransport
from redrive.transports.sqlite import SqliteTransport

LEASE = timedelta(seconds=60)


def _transport(url: str) -> Transport:
    return open_transport(url, clock=ManualClock(), lease=LEASE)


async def test_memory_and_sqlite_are_known(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    assert isinstance(_transport("memory://"), MemoryTransport)
    assert isinstance(open_store("memory://"), MemoryStore)
    store, transport = open_store(url), _transport(url)
    assert isinstance(store, SqliteStore)
    assert isinstance(transport, SqliteTransport)
    await store.aclose()
    await transport.aclose()


def test_a_typo_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no transport speaks 'sqlit': did you mean 'sqlite'"):
        _transport("sqlit:///redrive.db")
    with pytest.raises(ConfigError, match=r"no store speaks 'oracle': there is memory, .*sqlite"):
        open_store("oracle://db")


def test_a_password_in_a_url_is_not_repeated() -> None:
    for open_it in (_transport, open_store):
        with pytest.raises(ConfigError) as caught:
            open_it("amqpz://user:hunter2@host/vhost")
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "redrive.db", "/tmp/redrive.db", "sqlite", "sqlite:redrive.db"])
def test_what_is_no_url_is_refused_and_the_answer_shows_one(url: str) -> None:
    for open_it in (_transport, open_store):
        with pytest.raises(ConfigError, match="sqlite:///"):
            open_it(url)


def test_a_plug_in_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"redrive.stores": [EntryPoint("mine", f"{__name__}:open_mine", "redrive.stores")]}
    monkeypatch.setattr(registry, "entry_points", lambda group: points.get(group, []))
    assert isinstance(open_store("mine://somewhere"), MemoryStore)
    with pytest.raises(ConfigError, match="'mine'"):
        _transport("mine://somewhere")


def open_mine(url: str) -> MemoryStore:
    assert url == "mine://somewhere"
    return MemoryStore()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite:///x.db?mode=ro", "sqlite:// has no options"),
        ("kafka://host:abc", "'host:abc' in a URL of Kafka is no server"),
        ("kafka://host:9092,,other", "'' in a URL of Kafka is no server"),
        ("kafka://host:9092?gruop=x", "unknown option 'gruop' in a URL of Kafka: did you mean 'group'?"),
        ("amqp://host:abc", "the URL of RabbitMQ cannot be used: Port"),
        ("amqp://host?dealy=1s", "did you mean 'delay'?"),
        ("redis://host:abc", "the URL of Redis cannot be used: Port"),
        ("redis://host?prefx=x", "did you mean 'prefix'?"),
    ],
)
def test_what_is_wrong_in_a_url_is_said_with_its_setting(url: str, says: str) -> None:
    app = Redrive(settings=Settings(transports={"default": "memory://", "orders": url}))
    with pytest.raises(ConfigError) as caught:
        app.transport("orders")
    assert str(caught.value).startswith("transports.orders: ")
    assert says in str(caught.value)


@pytest.mark.parametrize("url", ["mongodb://host/x?gruop=1", "opensearch://host/x?gruop=1", "redis://host?gruop=1"])
def test_an_option_that_a_store_does_not_have_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^store: .*gruop"):
        _ = Redrive(store=url, transport="memory://").store
