"""Runs every check: the machine first, then what is configured, then what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from redrive.answers import Unanswered, ask_each
from redrive.app import Redrive
from redrive.doctor.alerts import notifiers
from redrive.doctor.broker import broker
from redrive.doctor.cluster import is_made
from redrive.doctor.contents import contents
from redrive.doctor.doubts import doubts
from redrive.doctor.files import is_missing, sqlite_files
from redrive.doctor.findings import Diagnosis, Finding, Level, failure, fine, warning
from redrive.doctor.machine import machine
from redrive.errors import ConfigError, RedriveError
from redrive.forensics.redact import Redactor
from redrive.stores.base import Store
from redrive.systems import use as systems
from redrive.transports.base import Transport


async def examine(app: Redrive) -> Diagnosis:
    """Look at everything. Nothing is created, changed or sent: a file that is not there stays so.

    What has nothing to do with each other is asked at the same time: one that hangs holds up nothing.
    """
    backends, of_systems, of_notifiers = await asyncio.gather(_backends(app), systems.findings(app), notifiers(app))
    return Diagnosis([*machine(), *sqlite_files(app.urls), *backends, *of_systems, *of_notifiers])


async def _backends(app: Redrive) -> list[Finding]:
    """Look at the store and the transports, and then into those that answer."""
    urls = {about: url for about, url in app.urls.items() if not is_missing(url)}
    answers = await ask_each({about: _asking(app, about, url) for about, url in urls.items()})
    silent = {each.backend: _silent(each, urls[each.backend]) for each in answers.unanswered}
    found = [finding for about in urls for finding in answers.found.get(about) or [silent[about]]]
    there = [each.about for each in found if each.level is not Level.FAILURE]
    transports = {name: app.transport(name) for name in app.transport_names if f"transports.{name}" in there}
    brokers = await ask_each({f"transports.{name}": _of_broker(app, name) for name in transports})
    found += [finding for some in brokers.found.values() for finding in some]
    found += [failure(each.backend, each.why, "look again: it answered a moment ago") for each in brokers.unanswered]
    return [*found, *(await _looked_into(app, transports) if "store" in there else [])]


def _asking(app: Redrive, about: str, url: str) -> Callable[[], Awaitable[list[Finding]]]:
    """Ask one backend whether it could do its work, and what it doubts of its own server."""

    async def ask() -> list[Finding]:
        backend: Store | Transport | None = None
        try:
            backend = app.store if about == "store" else app.transport(about.partition(".")[2])
            await backend.check()
        except ConfigError as error:
            wrong = failure(about, str(error), f"correct it, or `{about}`")
            return [wrong, *await doubts(about, backend, said=str(error))]
        except RedriveError as error:
            why = Redactor().text(str(error))
            return [_silent(Unanswered(about, why), url), *await doubts(about, backend, said=why)]
        return [_kept(about, Redactor().text(url), backend.features.durable), *await doubts(about, backend)]

    return ask


def _silent(silent: Unanswered, url: str) -> Finding:
    text = f"{Redactor().text(url)} does not answer: {silent.why}"
    return failure(silent.backend, text, f"start it, or correct `{silent.backend}`")


def _kept(about: str, url: str, durable: bool) -> Finding:
    if durable:
        return fine(about, f"{url} answers")
    lost = "letters" if about == "store" else "messages"
    return warning(
        about,
        f"{url} keeps {lost} in memory: they die with the process, and no other process sees them",
        f"for anything but tests set `{about}` to a database or broker, such as sqlite:///redrive.db",
    )


def _of_broker(app: Redrive, name: str) -> Callable[[], Awaitable[list[Finding]]]:
    return lambda: broker(app, name, app.transport(name))


async def _looked_into(app: Redrive, transports: dict[str, Transport]) -> list[Finding]:
    """Check the contents; a backend that goes away meanwhile is a finding too."""
    made = await ask_each({"store": lambda: is_made(app.store)})
    if made.found.get("store") is False:
        return [fine("letters", "none yet: the first one makes the tables or indexes")]
    return await contents(app, app.store, transports)
