"""Parked messages as an administrator sees them: the queues of the list, redacted, every re-drive written down."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from redrive.app import Redrive
from redrive.errors import NotFound, nearest
from redrive.forensics.redact import Redactor
from redrive.service import Service
from redrive.systems.files.settings import FilesSettings
from redrive.systems.files.worker import broker_url
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.redrive import Parked, Parkings, Redriven

_SUFFIX = ".dlq"


class UnknownQueue(NotFound):
    """There is no such queue of parked messages."""

    hint = "GET /admin/dlq/queues lists them"

    def __init__(self, queue: str, known: Iterable[str]) -> None:
        super().__init__(f"{queue!r} is not on the list of parked queues{nearest(queue, known)}")


class Depth(Struct, frozen=True):
    """A parked queue, and how many messages lie in it; None: it is not on the broker."""

    queue: str
    source: str
    messages: int | None


class Shown(Struct, frozen=True):
    """A parked message as people may see it."""

    message_id: str | None
    exchange: str
    routing_key: str
    redelivered: bool
    properties: dict[str, Any]
    headers: dict[str, Any]
    body: str
    encoding: str  # text or base64
    size: int


class ParkedQueues:
    """What may be done with parked messages."""

    def __init__(self, service: Service, files: FilesSettings) -> None:
        self._service = service
        self._files = files
        self._redactor: Redactor = service.redactor
        self._parkings = Parkings(options_of(broker_url(files)), service.app.clock)

    @classmethod
    def of(cls, app: Redrive) -> ParkedQueues:
        return cls(Service(app), app.settings.of(FilesSettings))

    async def aclose(self) -> None:
        await self._parkings.aclose()

    async def queues(self) -> list[Depth]:
        """Every queue of the list."""
        return [Depth(name, _source(name), await self._parkings.count(name)) for name in self._files.queues]

    async def messages(self, queue: str, limit: int = 20) -> list[Shown]:
        """The first messages of one; they stay where and as they are."""
        self._check(queue)
        return [_shown(one, self._redactor) for one in await self._parkings.peek(queue, limit)]

    async def redrive(
        self, queue: str, limit: int, *, actor: str, progress: Callable[[int, int], None] | None = None
    ) -> Redriven:
        """Send messages of one round again; written to the audit trail, how far it came too."""
        self._check(queue)
        done = await self._parkings.redrive(_source(queue), limit=limit, by=actor, progress=progress)
        await self._service.note(actor, "files.re-drive", f"{done.sent} of {done.found} from {queue}")
        return done

    def _check(self, queue: str) -> None:
        if queue not in self._files.queues:
            raise UnknownQueue(queue, self._files.queues)


def _source(queue: str) -> str:
    return queue.removesuffix(_SUFFIX)


def _shown(one: Parked, redactor: Redactor) -> Shown:
    try:
        text, encoding = one.body.decode(), "text"
        text = redactor.text(text)
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(one.body).decode(), "base64"
    headers = {
        name: redactor.text(value) if isinstance(value, str) else _plain(value) for name, value in one.headers.items()
    }
    properties = {name: _plain(value) for name, value in one.properties.items()}
    return Shown(
        one.message_id,
        one.exchange,
        one.routing_key,
        one.redelivered,
        properties,
        headers,
        text,
        encoding,
        len(one.body),
    )


def _plain(value: Any) -> Any:
    """What JSON can say."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(name): _plain(one) for name, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case str() | int() | float() | bool() | None:
            return value
    return str(value)
