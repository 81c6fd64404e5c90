"""Which backend a URL means."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from redrive import registry
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
