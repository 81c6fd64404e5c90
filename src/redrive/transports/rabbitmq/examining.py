"""Checks of `redrive doctor`: whether a broker has what it should, and takes messages now. It changes nothing."""

from __future__ import annotations

from redrive.errors import ConfigError, TransportUnavailable
from redrive.transports.rabbitmq.declaring import is_there
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.management import Difference, Management
from redrive.transports.rabbitmq.topology import Declared


class Examined(Difference, frozen=True):
    """How the broker differs from what is wanted, its alarms, and, if not all could be looked at, why."""

    alarms: tuple[str, ...] = ()
    unseen: str = ""


async def examined(link: Link, management: Management, wanted: Declared) -> Examined:
    """All of it through the management API; without that, only what is missing."""
    try:
        found = await management.difference(wanted)
        return Examined(found.missing, found.clashes, found.extra, tuple(await management.alarms()))
    except (ConfigError, TransportUnavailable) as error:
        return Examined(missing=tuple(await _missing(link, wanted)), unseen=str(error))


async def _missing(link: Link, wanted: Declared) -> list[str]:
    names = [
        f"exchange {exchange.name}"
        for exchange in wanted.exchanges
        if not await is_there(link, exchange.name, exchange=True)
    ]
    return names + [f"queue {queue.name}" for queue in wanted.queues if not await is_there(link, queue.name)]
