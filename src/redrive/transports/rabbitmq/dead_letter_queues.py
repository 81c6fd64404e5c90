"""The dead-letter queues `q.X.dlq`: dead messages are published there, and confirmed, before they are acknowledged.

What is in such a queue is the message itself, with why it died in headers that people and programs can read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from redrive.errors import TransportUnavailable
from redrive.model import Letter, Reason
from redrive.transports.base import ACCEPTED, SendResult
from redrive.transports.rabbitmq.publisher import Parcel, Publisher, result_of
from redrive.transports.rabbitmq.topology import PARKING, dlq_exchange
from redrive.transports.rabbitmq.wire import STORY, properties_of, story

DEAD = "redrive-dead"
_ABOUT = "x-redrive-"


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
    properties.headers |= {
        STORY: story(letter.failures),
        DEAD: msgspec.json.encode(about).decode(),
        f"{_ABOUT}reason": letter.reason.value,
        f"{_ABOUT}error-type": last.type,
        f"{_ABOUT}error-message": last.message[:1000],
        f"{_ABOUT}category": last.category.value,
        f"{_ABOUT}attempts": last.attempt,
        f"{_ABOUT}parked-at": letter.updated_at.isoformat(),
    }
    if message.origin:
        properties.headers |= {f"{_ABOUT}exchange": exchange, f"{_ABOUT}routing-key": key}
    return Parcel(dlq_exchange(message.source), PARKING, properties, message.body, (STORY,))


def is_about(name: str) -> bool:
    """Whether a header says why a message died: it does not go with it when it is sent back."""
    return name in (DEAD, STORY) or name.startswith(_ABOUT)


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
