"""Checks a broker whose queues need others around them: are they there, and does it take messages?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random

from redrive.app import Redrive
from redrive.doctor.findings import Finding, failure, fine, warning
from redrive.flow.context import Handler
from redrive.transports.base import Advises, Demand, Examined, HasTopology, Transport


async def broker(app: Redrive, name: str, transport: Transport) -> list[Finding]:
    """Check the broker of a transport; nothing for a transport without one."""
    if isinstance(transport, Advises):
        return await _advised(app, name, transport)
    if not isinstance(transport, HasTopology):
        return []
    sources = [source for source, handler in app.handlers.items() if handler.transport == name]
    found = await transport.examined(sources)
    mend = (
        "start a worker: it makes them"
        if transport.makes_queues
        else "create them on the broker (RabbitMQ: or leave declare=no out of the URL)"
    )
    return list(topology_findings(f"transports.{name}", found, mend, len(sources)))


async def _advised(app: Redrive, name: str, transport: Advises) -> list[Finding]:
    handlers = [handler for handler in app.handlers.values() if handler.transport == name]
    about = f"transports.{name}"
    found = [
        (failure if advice.is_failure else warning)(about, advice.text, advice.mend)
        for advice in await transport.advice([demand_of(handler) for handler in handlers])
    ]
    s = "s" * (len(handlers) != 1)
    return found or [fine(about, f"{len(handlers)} queue{s} set up as they should be")] * bool(handlers)


def demand_of(handler: Handler) -> Demand:
    """What a handler asks of its queue: jitter and chance aside."""
    policy = handler.policy
    waits = [policy.backoff.delay(attempt, Random(0)) or timedelta() for attempt in range(1, policy.most_attempts)]
    longest = max(waits, default=timedelta())
    return Demand(handler.source, policy.most_attempts, handler.timeout, sum(waits, timedelta()), longest)


def topology_findings(
    about: str, found: Examined, mend: str, queues: int, *, management: str = "`management=` in the URL"
) -> Iterator[Finding]:
    """What there is to say of a broker that was examined.

    mend         how its missing queues are made
    management   what says where its management API is
    """
    for alarm in found.alarms:
        yield failure(
            about,
            f"the broker has an alarm, so it takes nothing from publishers: no retry, dead letter or send ({alarm})",
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
            f"enable the plugin rabbitmq_management, and say where it is ({management})",
        )
    elif queues and not (found.alarms or found.clashes or found.missing):
        s = "s" * (queues != 1)
        yield fine(about, f"no alarm, and {queues} queue{s} with retry and dead-letter parts as they should be")
