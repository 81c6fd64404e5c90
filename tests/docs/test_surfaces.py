"""The pages name every route, metric, log line, event and span attribute there is, and no other."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import redrive.stores.base
import redrive.transports.base
from redrive import Redrive
from redrive.admin.access import handlers_of
from redrive.admin.api import create_api
from redrive.forensics.measured import Measured
from redrive.forensics.query import Query
from redrive.forensics.stats import Stats
from redrive.service import Service
from redrive.stores.base import Letters, Store
from redrive.systems.base import resolved
from redrive.systems.discover import systems
from redrive.telemetry import events, logs, tracing
from redrive.telemetry.metrics import Metrics
from redrive.testing.builders import make_failure, make_message
from redrive.transports.base import Features, Transport
from tests.docs.samples import DOCS, ROOT
from tests.docs.test_reference import rows, section

API = DOCS / "reference" / "api.md"
TELEMETRY = DOCS / "reference" / "telemetry.md"
PLUGINS = DOCS / "how-to" / "plugins.md"
SOURCE = ROOT / "src" / "redrive"
_UNSEEN = (  # for browsers, and Litestar's own
    "/",
    "/console",
    "/console/{path}",
    "/assets/{tree}/{path}",
    "/docs/openapi.json",
    "/docs/{path}",
)


@pytest.fixture
def app() -> Redrive:
    return Redrive(transport="memory://", store="memory://")


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def table(page: Path, title: str, column: int = 1) -> dict[str, list[str]]:
    """The names in the first column, with those of another."""
    return {name: ticked(cells[column]) for cells in rows(section(page, title)) for name in ticked(cells[0])}


def test_routes_and_roles(app: Redrive) -> None:
    api = create_api(Service(app))
    real = {
        f"{method} {path}": str(handler.opt["role"] or "anyone")
        for method, path, handler in handlers_of(api)
        if path not in _UNSEEN
    }
    assert {ticked(cells[0])[0]: cells[1] for cells in rows(section(API, "Routes"))} == real


def test_routes_of_systems(app: Redrive) -> None:
    routers = [resolved(system.routes) for system in systems().values() if system.routes]
    own = {(method, path) for method, path, _ in handlers_of(create_api(Service(app)))}
    real = {
        f"{method} {path}": str(handler.opt["role"])
        for method, path, handler in handlers_of(create_api(Service(app), routers=routers))
        if (method, path) not in own
    }
    assert {ticked(cells[0])[0]: cells[1] for cells in rows(section(API, "Of the systems"))} == real


def test_filters() -> None:
    shown = [name for cells in rows(section(API, "`GET /api/letters`")) for name in ticked(cells[0])]
    given = set(Query.__struct_fields__) - {"scope"}  # which is the asker's own, and no parameter
    assert sorted(shown) == sorted([*given, "limit", "after"])


def test_metrics(app: Redrive) -> None:
    stats = Stats(datetime.now(UTC), 0, 0, {}, {}, [])
    text = Metrics(app.events).render(Measured(stats, {})).decode()
    real = {(name, kind) for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE)}
    shown = {(ticked(cells[0])[0], cells[1]) for cells in rows(section(TELEMETRY, "Metrics"))}
    assert {one for one in real if not one[0].endswith("_created")} == shown


def _event_kinds() -> dict[str, type[events.Event]]:
    kinds = [one for one in vars(events).values() if isinstance(one, type) and issubclass(one, events.Event)]
    return {one.__name__: one for one in kinds if one is not events.Event}


def test_events() -> None:
    real = {name: list(kind.__struct_fields__) for name, kind in _event_kinds().items()}
    assert table(TELEMETRY, "Events") == real


def _an(kind: type[events.Event]) -> events.Event:
    """An event of that kind, with something in every field."""
    wanted: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return kind(**{name: _something(name, type) for name, type in wanted.items()})


def _something(name: str, kind: Any) -> Any:
    if name == "failure":
        return make_failure(code="503")
    guesses: tuple[Any, ...] = ("pending", 1, 1.0, True, ("x",), (1.0,), "permanent", "2030-01-01T00:00:00Z", "PT1S")
    for guess in guesses:
        try:
            return msgspec.convert(guess, kind)
        except msgspec.ValidationError:
            continue
    raise AssertionError(f"nothing fits {name}: {kind}")


def test_log_lines() -> None:
    real: dict[str, tuple[str, list[str]]] = {"lines_suppressed": ("warning", ["of", "count"])}
    for kind, say in logs._SAYS.items():
        level, name, fields = say(_an(kind))
        real[name] = (_level(level), list(fields))
    shown = {ticked(cells[0])[0]: (cells[1], ticked(cells[2])) for cells in rows(section(TELEMETRY, "Log lines"))}
    assert {name: (level, sorted(fields)) for name, (level, fields) in shown.items()} == {
        name: (level, sorted(fields)) for name, (level, fields) in real.items()
    }


def _level(number: int) -> str:
    return {10: "debug", 20: "info", 30: "warning", 40: "error"}[number]


def test_attributes_of_a_span() -> None:
    message = make_message(tenant="acme", correlation_id="c", attempt=2)
    shown = set(table(TELEMETRY, "Traces"))
    assert set(tracing._attributes(message)) <= shown
    assert shown - set(tracing._attributes(message)) == {"redrive.letter", "redrive.replay", "error.type"}


def test_methods_and_features_of_plugins() -> None:
    transport = {name for name, value in vars(Transport).items() if asyncio.iscoroutinefunction(value)}
    assert {one.partition("(")[0] for one in table(PLUGINS, "A transport")} == transport
    assert set(table(PLUGINS, "Features")) == set(Features.__struct_fields__) - {"ordered_by"}
    letters = {name for name, value in vars(Letters).items() if asyncio.iscoroutinefunction(value)}
    assert set(table(PLUGINS, "A store")["letters"]) == letters


def _protocols(module: ModuleType) -> dict[str, type]:
    """Those that a module defines."""
    found = {name: value for name, value in vars(module).items() if getattr(value, "_is_protocol", False)}
    return {name: value for name, value in found.items() if value.__module__ == module.__name__}


@pytest.mark.parametrize("module", [redrive.transports.base, redrive.stores.base], ids=["transports", "stores"])
def test_every_protocol_is_named_for_plugins(module: ModuleType) -> None:
    """That of a part of a store is named by the part: `letters` are `Letters`."""
    parts = {name for name, value in vars(Store).items() if isinstance(value, property)}
    needless = {*(part.capitalize() for part in parts), "Transport", "Store"}
    page = PLUGINS.read_text()
    assert [name for name in _protocols(module).keys() - needless if f"`{name}`" not in page] == []


def test_every_optional_protocol_of_a_transport_has_a_line() -> None:
    optional = {
        name: value
        for name, value in _protocols(redrive.transports.base).items()
        if getattr(value, "_is_runtime_protocol", False)
    }
    shown = table(PLUGINS, "Optional protocols")
    assert {name: sorted(methods) for name, methods in shown.items()} == {
        name: sorted(method for method in vars(value) if not method.startswith("_")) for name, value in optional.items()
    }


def test_what_is_asked_of_a_transport_or_a_store_is_a_protocol_of_its_base() -> None:
    """A plug-in can have whatever ours have: the core asks for nothing by another name."""
    asks = re.compile(r"^@runtime_checkable|hasattr\((transport|store)\b", re.MULTILINE)
    files = [file for file in SOURCE.rglob("*.py") if file.name != "base.py" and asks.search(file.read_text())]
    assert sorted(str(file.relative_to(SOURCE)) for file in files) == [
        f"testing/transports/{name}.py" for name in ("finding", "listing", "pausing")
    ]
