"""Runs every check: the machine first, then what is configured, then what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from redrive.app import Redrive
from redrive.doctor.alerts import notifiers
from redrive.doctor.broker import broker
from redrive.doctor.cluster import is_made
from redrive.doctor.contents import contents
from redrive.doctor.doubts import doubts
from redrive.doctor.files import is_missing, sqlite_files
from redrive.doctor.findings import Diagnosis, Finding, failure, fine, warning
from redrive.doctor.machine import machine
from redrive.errors import ConfigError, RedriveError
from redrive.forensics.redact import Redactor
from redrive.stores.base import Store
from redrive.systems import use as systems
from redrive.transports.base import Transport

_PATIENCE = 10.0
B = TypeVar("B", Store, Transport)


async def examine(app: Redrive) -> Diagnosis:
    """Look at everything. Nothing is created, changed or sent: a file that is not there stays so."""
    found = [*machine(), *sqlite_files(app.urls)]
    store = await _reached("store", app.urls["store"], lambda: app.store, found)
    transports: dict[str, Transport] = {}
    for about, url in app.urls.items():
        section, _, name = about.partition(".")
        if section == "transports":
            transport = await _reached(about, url, lambda name=name: app.transport(name), found)  # type: ignore[misc]
            if transport is not None:
                transports[name] = transport
                found += await _of_broker(app, name, transport)
    if store is not None:
        found += await _looked_into(app, store, transports)
    found += await systems.findings(app)
    found += await notifiers(app)
    return Diagnosis(found)


async def _reached(about: str, url: str, opened: Callable[[], B], found: list[Finding]) -> B | None:
    """The backend, if it answers; what there is to say of it is added to the findings."""
    if is_missing(url):
        return None
    shown, backend = Redactor().text(url), None
    try:
        backend = opened()
        async with asyncio.timeout(_PATIENCE):
            await backend.check()
    except ConfigError as error:
        found.append(failure(about, str(error), f"correct it, or `{about}`"))
        found += await doubts(about, backend, said=str(error))
        return None
    except (RedriveError, TimeoutError) as error:
        why = str(error) or f"no answer within {_PATIENCE:g} s"
        found.append(failure(about, f"{shown} does not answer: {why}", f"start it, or correct `{about}`"))
        found += await doubts(about, backend, said=why)
        return None
    found.append(_kept(about, shown, backend.features.durable))
    found += await doubts(about, backend)
    return backend


def _kept(about: str, url: str, durable: bool) -> Finding:
    if durable:
        return fine(about, f"{url} answers")
    lost = "letters" if about == "store" else "messages"
    return warning(
        about,
        f"{url} keeps {lost} in memory: they die with the process, and no other process sees them",
        f"for anything but tests set `{about}` to a database or broker, such as sqlite:///redrive.db",
    )


async def _of_broker(app: Redrive, name: str, transport: Transport) -> list[Finding]:
    try:
        return await broker(app, name, transport)
    except RedriveError as error:
        return [failure(f"transports.{name}", str(error), "look again: it answered a moment ago")]


async def _looked_into(app: Redrive, store: Store, transports: dict[str, Transport]) -> list[Finding]:
    """Run a check; a backend that goes away meanwhile is a finding too."""
    try:
        if not await is_made(store):
            return [fine("letters", "none yet: the first one makes the tables or indexes")]
        return [finding async for finding in contents(app, store, transports)]
    except RedriveError as error:
        return [failure("store", str(error), "look again: it answered a moment ago")]
