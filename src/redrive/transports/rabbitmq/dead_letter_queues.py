"""The dead-letter queues `q.X.dlq`: dead messages are published there, and confirmed, before they are acknowledged.

What is in such a queue is the message itself, with why it died in headers that people and programs can read. It is
signed: whoever may publish to the queue could otherwise write a letter that stands for another (decision 57).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from redrive.errors import TransportUnavailable
from redrive.model import DEAD_HEADER, Letter, Message, Reason
from redrive.proof import ring
from redrive.transports.base import ACCEPTED, SendResult
from redrive.transports.rabbitmq.publisher import Parcel, Publisher, result_of
from redrive.transports.rabbitmq.topology import PARKING, dlq_exchange
from redrive.transports.rabbitmq.wire import STORY, properties_of, story
from redrive.untrusted import UNREADABLE

_ABOUT = "x-redrive-"
ERROR_TYPE, ERROR_MESSAGE, PARKED_AT = (f"{_ABOUT}{name}" for name in ("error-type", "error-message", "parked-at"))
ATTEMPTS = f"{_ABOUT}attempts"
PROOF = f"{_ABOUT}proof"
"""That we wrote the letter; empty, where we had no key."""


class Dead(Struct, frozen=True, omit_defaults=True):
    """What a letter knows that its message does not."""

    reason: Reason
    group: str
    created_at: datetime
    max_retries: int = 0
    depends_on: tuple[str, ...] = ()
    expires_at: datetime | None = None


def parcel_of(letter: Letter) -> Parcel:
    """The letter as it is published to the dead-letter queue of its source."""
    message, last = letter.message, letter.last
    properties = properties_of(message, dead=True)
    exchange, _, key = message.origin.partition("/")
    about = Dead(
        letter.reason, letter.group, letter.created_at, letter.max_retries, letter.depends_on, letter.expires_at
    )
    said, told = msgspec.json.encode(about), story(letter.failures)
    properties.headers |= {
        STORY: told,
        DEAD_HEADER: said.decode(),
        PROOF: ring().sign(*_signed(message, said, told)),
        f"{_ABOUT}reason": letter.reason.value,
        ERROR_TYPE: last.type,
        ERROR_MESSAGE: last.message[:1000],
        f"{_ABOUT}category": last.category.value,
        ATTEMPTS: last.attempt,
        PARKED_AT: letter.updated_at.isoformat(),
    }
    if message.origin:
        properties.headers |= {f"{_ABOUT}exchange": exchange, f"{_ABOUT}routing-key": key}
    return Parcel(dlq_exchange(message.source), PARKING, properties, message.body, (STORY,))


def dead_in(message: Message, table: Mapping[str, Any]) -> Dead | None:
    """What `parcel_of` wrote of that message, whose source is that of its queue; None if somebody else wrote it."""
    said, told = table.get(DEAD_HEADER), table.get(STORY)
    if not isinstance(said, str) or not isinstance(told, bytes):
        return None
    if not ring().believes(str(table.get(PROOF, "")), *_signed(message, said.encode(), told)):
        return None
    try:
        return msgspec.json.decode(said, type=Dead)
    except UNREADABLE:
        return None


def _signed(message: Message, said: bytes, told: bytes) -> Iterator[str | None]:
    """What is signed: whose letter it is, what it holds, and why it died."""
    for text in (message.source, message.id, message.tenant):
        yield None if text is None else text.encode("utf-8", "surrogatepass").hex()
    for data in (message.key, message.body, said, told):
        yield None if data is None else sha256(data).hexdigest()


def is_about(name: str) -> bool:
    """Whether a header says why a message died: it does not go with it when it is sent back."""
    return name in (DEAD_HEADER, STORY) or name.startswith(_ABOUT)


class DeadLetterQueues:
    """The queues `q.X.dlq` as a place for dead letters."""

    def __init__(self, publisher: Publisher, *, name: str, replaces_store: bool) -> None:
        self.name = name
        self.replaces_store = replaces_store
        self._publisher = publisher

    async def bury(self, letters: Sequence[Letter]) -> Sequence[SendResult]:
        outcomes = await self._publisher.outcomes([parcel_of(letter) for letter in letters])
        return [_answer(error) for error in outcomes]

    async def refer(self, letters: Sequence[Letter]) -> None:
        """Does nothing: what is too large for the queue is in the store, and a queue has no place for notes."""


def _answer(error: TransportUnavailable | None) -> SendResult:
    if error is None:
        return ACCEPTED
    return SendResult(result_of(error).status, f"a dead message could not reach its dead-letter queue: {error.why}")
