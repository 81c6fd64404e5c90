"""Dead-letter queues as an administrator sees them: those of the settings, redacted, with an audit of each re-drive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from msgspec import Struct

from redrive.access.actors import Actor
from redrive.app import Redrive
from redrive.errors import NotFound, nearest
from redrive.forensics.binaries import is_binary
from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import MASK
from redrive.service import Service
from redrive.service.acting import acts
from redrive.service.redacting import each_off_loop
from redrive.systems.files.settings import FilesSettings
from redrive.systems.files.worker import broker_url
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.redrive import BATCH, DeadMessage, DeadMessages, Redriven

_SUFFIX = ".dlq"


class UnknownQueue(NotFound):
    """There is no such dead-letter queue."""

    hint = "GET /admin/dlq/queues lists them"

    def __init__(self, queue: str, known: Iterable[str]) -> None:
        super().__init__(f"{queue!r} is not on the list of dead-letter queues{nearest(queue, known)}")


class Depth(Struct, frozen=True):
    """A dead-letter queue, and how many messages it holds; None: it is not on the broker."""

    queue: str
    source: str
    messages: int | None


class Shown(Struct, frozen=True):
    """A dead message as people may see it."""

    message_id: str | None
    exchange: str
    routing_key: str
    redelivered: bool
    properties: dict[str, Any]
    headers: dict[str, Any]
    body: str
    encoding: str  # text or binary, of which the body is a preview
    size: int


class Plan(Struct, frozen=True):
    """What a re-drive is about to do."""

    queue: str
    source: str
    found: int  # in the dead-letter queue
    wanted: int
    at_most_twice: int = BATCH
    note: str = (
        f"A re-drive that is killed leaves at most {BATCH} messages in both queues. Workers of `redrive files` that "
        "share one store drop the repeats; every other consumer handles these twice, unless it looks at "
        "x-redriven-id itself."
    )


class DeadLetterQueues:
    """What may be done with the messages of the dead-letter queues."""

    def __init__(self, service: Service, files: FilesSettings) -> None:
        self._asking = service
        self._files = files
        self._queues = DeadMessages(options_of(broker_url(files)), service.app.clock)

    @classmethod
    def of(cls, app: Redrive) -> DeadLetterQueues:
        return cls(Service(app), app.settings.of(FilesSettings))

    async def aclose(self) -> None:
        await self._queues.aclose()

    async def queues(self) -> list[Depth]:
        """Every dead-letter queue of the setting `files.queues`."""
        return [Depth(name, _source(name), await self._queues.count(name)) for name in self._files.queues]

    async def messages(self, queue: str, limit: int = 20) -> list[Shown]:
        """The first messages of a dead-letter queue; they stay where and as they are."""
        self._check(queue)
        return await each_off_loop(
            await self._queues.peek(queue, limit),
            lambda message: shown(message, self._asking.redactor),
            lambda message: len(message.body),
        )

    @acts("files.re-drive")
    async def redrive(
        self, queue: str, limit: int, *, actor: Actor, progress: Callable[[int, int], None] | None = None
    ) -> Redriven:
        """Send messages of a dead-letter queue back to their queue; the audit trail says how far it came."""
        self._check(queue)
        await self._let_wait(queue, limit, actor)
        done = await self._queues.redrive(_source(queue), limit=limit, by=str(actor), progress=progress)
        await self._asking.note(actor, "files.re-drive", f"{done.sent} of {done.found} from {queue}")
        return done

    async def _let_wait(self, queue: str, limit: int, actor: Actor) -> None:
        """Let it wait for a second person if it sends so many: the yes is for that queue and no more than so many."""
        four_eyes = self._asking.four_eyes
        if four_eyes.is_on:
            wanted = min(limit, await self._queues.count(queue) or 0)
            digest = sha256(f"{queue}\n{limit}".encode()).hexdigest()
            what = f"up to {limit:,} messages of {queue} go back to {_source(queue)}"
            await four_eyes.check_written("files.re-drive", wanted, digest, actor, reason="", what=what)

    async def plan(self, queue: str, limit: int | None = None) -> Plan:
        """What `redrive` would do now."""
        self._check(queue)
        found = await self._queues.count(queue) or 0
        return Plan(queue, _source(queue), found, found if limit is None else min(limit, found))

    def _check(self, queue: str) -> None:
        if queue not in self._files.queues:
            raise UnknownQueue(queue, self._files.queues)


def _source(queue: str) -> str:
    return queue.removesuffix(_SUFFIX)


def shown(message: DeadMessage, redactor: Redactor) -> Shown:
    """As people may see it: nothing of it leaves unmasked, bytes neither."""
    return Shown(
        None if message.message_id is None else redactor.text(message.message_id),
        message.exchange,
        message.routing_key,
        message.redelivered,
        _masked(message.properties, redactor),
        _masked(message.headers, redactor),
        redactor.body(message.body),
        "binary" if is_binary(message.body) else "text",
        len(message.body),
    )


def _masked(values: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Headers and what is nested in them, masked as a body of JSON is: by their names, too."""
    try:
        found: dict[str, Any] = json.loads(redactor.text(json.dumps(_plain(values, redactor))))
    except ValueError:
        return {MASK: MASK}
    return found


def _plain(value: Any, redactor: Redactor) -> Any:
    """The value as JSON can say it."""
    match value:
        case bytes():
            return redactor.body(value)
        case dict():
            return {str(name): _plain(item, redactor) for name, item in value.items()}
        case list():
            return [_plain(item, redactor) for item in value]
        case str() | int() | float() | bool() | None:
            return value
    return str(value)
