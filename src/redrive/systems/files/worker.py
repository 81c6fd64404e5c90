"""File processing, wired from the parts: a Redrive app with a handler for each of its queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode, urlsplit

from redrive.app import Redrive
from redrive.clock import Clock
from redrive.config.durations import spoken
from redrive.config.load import load
from redrive.config.settings import Settings
from redrive.errors import ConfigError, Unavailable, nearest
from redrive.flow.around import Call
from redrive.flow.backoff import constant
from redrive.model import Message
from redrive.policy import Policy
from redrive.stores.base import Store
from redrive.systems.files.logs import FilesLog
from redrive.systems.files.repeats import Repeats
from redrive.systems.files.settings import FilesSettings
from redrive.systems.files.topology import QUEUES, topology
from redrive.transports.base import Transport
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.topology import Topology, declared

if TYPE_CHECKING:
    from redrive.transports.rabbitmq.examining import Examined

_SWEEP_EVERY = timedelta(hours=1)


class FilesWorker:
    """Handles the queues of the files. A failed message goes round its own queue; one that keeps failing lies
    in `q.X.dlq`, or is kept as a letter where `bury` says so (dlq, store or both).

    handlers   a function for each queue: sync or async, with the body and, if it wants it, the Message
    """

    def __init__(
        self,
        handlers: Mapping[str, Callable[..., Any]],
        settings: Settings | None = None,
        *,
        bury: str = "dlq",
        store: str | Store | None = None,
        transport: str | Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not handlers:
            raise ConfigError(f"no handler: give one for each queue that is to be handled, of {', '.join(QUEUES)}")
        for queue in handlers:
            if queue not in QUEUES:
                raise ConfigError(f"file processing has no queue {queue!r}{nearest(queue, QUEUES)}")
        self.settings = settings or load()
        self.app = Redrive(
            settings=self.settings,
            transport=transport or transport_url(self.settings.of(FilesSettings), bury=bury),
            store=store,
            clock=clock,
        )
        self.repeats = Repeats(self.app)
        self._log: FilesLog | None = None
        files = self.settings.of(FilesSettings)
        for queue, function in handlers.items():
            policy = Policy(attempts=files.retries + 1, backoff=constant(files.delay))
            around = (self._noted, self.repeats.once)
            self.app.handler(queue, policy=policy, concurrency=files.concurrency, around=around)(function)

    def log_to(self, log: FilesLog) -> None:
        """Write failures, retries and dead messages to that log."""
        self._log = log
        self.app.events.subscribe(log)

    async def _noted(self, message: Message, call: Call) -> Any:
        return await (call() if self._log is None else self._log.noting(message, call))

    async def sweep(self) -> None:
        """Runs beside a worker: deletes the ids of re-drives of long ago."""
        while True:
            with suppress(Unavailable):
                await self.repeats.sweep()
            await self.app.clock.sleep(_SWEEP_EVERY.total_seconds())


def transport_url(files: FilesSettings, *, bury: str = "dlq") -> str:
    """The URL of the queues as a transport: RabbitMQ delays retries, and keeps dead messages in `q.X.dlq`."""
    url = broker_url(files)
    ours = {"retry": "reject", "delay": spoken(files.delay), "bury": bury, "queues": files.kind, "declare": "no"}
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode({**ours, 'prefetch': str(files.prefetch)})}"


def broker_url(files: FilesSettings) -> str:
    if files.url is None:
        raise ConfigError("no broker: set `files.url` (REDRIVE_FILES_URL), such as amqp://user:password@host/vhost")
    return files.url


def management_url(files: FilesSettings) -> str:
    """The URL of the management API: as set, or port 15672 of the broker with the same user."""
    if files.management is not None:
        return files.management
    parts = urlsplit(broker_url(files))
    user = f"{parts.username}:{parts.password or ''}@" if parts.username else ""
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return f"http://{user}{host}:15672"


def vhost_of(files: FilesSettings) -> str:
    return unquote(urlsplit(broker_url(files)).path.removeprefix("/")) or "/"


async def examined(files: FilesSettings) -> Examined:
    """How the broker differs from the topology of the files; TransportUnavailable if it does not answer."""
    from redrive.transports.rabbitmq.examining import examined
    from redrive.transports.rabbitmq.link import Link
    from redrive.transports.rabbitmq.management import Management

    link = Link(options_of(broker_url(files)))
    management = Management(management_url(files), vhost=vhost_of(files))
    try:
        await (await link.channel()).close()
        return await examined(link, management, declared(wanted(files)))
    finally:
        await management.aclose()
        await link.aclose()


def wanted(files: FilesSettings) -> Topology:
    """The topology with the delay and the kind of queues that are set."""
    return topology(delay=files.delay, kind="quorum" if files.kind == "quorum" else "classic")
