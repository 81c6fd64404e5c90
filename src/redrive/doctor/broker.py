"""Checks a broker whose queues need others around them: are they there, and does it take messages?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from redrive.app import Redrive
from redrive.doctor.findings import Finding, failure, fine, warning
from redrive.errors import RedriveError
from redrive.transports.base import Transport


@runtime_checkable
class HasTopology(Protocol):
    """What a transport has that can say how its broker differs from what is wanted."""

    makes_queues: bool

    async def examined(self, sources: Sequence[str]) -> Any: ...


async def broker(app: Redrive, name: str, transport: Transport) -> list[Finding]:
    """Check the broker of a transport; nothing for a transport without one."""
    if not isinstance(transport, HasTopology):
        return []
    sources = [source for source, handler in app.handlers.items() if handler.transport == name]
    found = await transport.examined(sources)
    mend = (
        "start a worker: it makes them" if transport.makes_queues else "make them, or leave declare=no out of the URL"
    )
    return list(_told(f"transports.{name}", found, mend, len(sources)))


async def pipeline(app: Redrive) -> list[Finding]:
    """Check the broker of `redrive files`, if one is set."""
    about = "files.url"
    if app.settings.files.url is None:
        return []
    try:
        from redrive.systems.files.worker import examined

        found = await examined(app.settings.files)
    except RedriveError as error:
        return [failure(about, str(error), f"start it, or correct `{about}`")]
    return [
        *_told(about, found, "`redrive files import` makes them", len(app.settings.files.queues)),
        *(
            warning(
                about, f"nobody asked for this {binding}: messages come through it", "`redrive files diff`; unbind it"
            )
            for binding in found.extra
        ),
    ]


def _told(about: str, found: Any, mend: str, queues: int) -> Iterator[Finding]:
    for alarm in found.alarms:
        yield failure(
            about,
            f"the broker has an alarm, so it takes nothing from publishers: no retry, no parking, no sending ({alarm})",
            "give it memory or disk, or take messages out of it",
        )
    for clash in found.clashes:
        yield failure(about, f"declared otherwise on the broker: {clash}", "delete it once it is empty, or agree to it")
    if found.missing:
        lacking = ", ".join(found.missing)
        yield failure(about, f"not on the broker: {lacking}: what goes there is kept back, or lost", mend)
    if found.unseen:
        yield warning(
            about,
            f"bindings, arguments and alarms could not be looked at: {found.unseen}",
            "enable the plugin rabbitmq_management, and say where it is (`management=` in the URL, `files.management`)",
        )
    elif queues and not (found.alarms or found.clashes or found.missing):
        s = "s" * (queues != 1)
        yield fine(about, f"no alarm, and {queues} queue{s} with retry and dead-letter parts as they should be")
