"""A dead-letter topic: letters are published there, confirmed, before they are recorded and their offset is committed.

In addition to the store, or instead of it; whoever reads the topic then records the letters (`letter_in` makes them
from what `record_of` has written).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from redrive.errors import TransportUnavailable
from redrive.model import DEAD_HEADER, Headers, Letter, Message
from redrive.proof import ring
from redrive.transports.base import SendResult, SendStatus
from redrive.transports.kafka.driver import NAME, log
from redrive.transports.kafka.options import topic_named
from redrive.transports.kafka.wire import headers_of, value_of
from redrive.transports.kafka.writer import Parcel, Writer, result_of
from redrive.untrusted import UNREADABLE

Form: TypeAlias = Callable[[Letter, str], Parcel]
"""How a letter looks on that topic. A ready system brings the form of its contract."""
DEAD = DEAD_HEADER
"""The whole letter as JSON, less the body, which is the record's value."""
STUB = "redrive-stub"
"""The id of a letter that was too large for the topic: its body is in the store."""
FORM = "redrive-dlq-form"
"""What the value is, where it is not the body of the dead message: the full name of a message of protobuf."""
_ABOUT = "redrive-dlq-"
PROOF = f"{_ABOUT}proof"
"""That we wrote the letter: anybody who may write to the topic could write one that overwrites another."""
_ABOUTS = 8  # headers that say why, before the one that has it all
_LONGEST_KEY = 256  # of a stub
_STORE = "store"


class _Stub(Struct):
    letter: str
    kept_in: str = field(name="in")


def record_of(letter: Letter, topic: str) -> Parcel:
    """The record of a letter: key, value and headers as they were, and headers that say why it died."""
    message, last = letter.message, letter.last
    said = msgspec.json.encode(replace(letter, message=replace(message, body=b"", headers=())))
    about = {
        "reason": letter.reason,
        "error-type": last.type,
        "error-message": last.message,
        "category": last.category,
        "attempts": str(last.attempt),
        "origin": message.origin,
        "at": last.at.isoformat(),
    }
    return Parcel(
        topic=topic,
        value=value_of(message),
        key=message.key,
        headers=[
            *headers_of(message),
            *((f"{_ABOUT}{name}", text.encode()) for name, text in about.items()),
            *_proof(said),
            (DEAD, said),  # the last of ours: `letter_in` tells by it which those are
        ],
        at=letter.updated_at,
    )


def _proof(said: bytes) -> Iterator[tuple[str, bytes]]:
    if signature := ring().sign(said.hex()):
        yield PROOF, signature.encode()


def letter_in(headers: Headers, message: Message) -> Letter | None:
    """The letter that `record_of` wrote; None if somebody else wrote that record."""
    end = next((place for place in reversed(range(len(headers))) if headers[place][0] == DEAD), None)
    if end is None:
        return None
    proof = next((value for name, value in headers[max(end - 1, 0) : end] if name == PROOF), b"")
    if not ring().believes(proof.decode("ascii", "replace"), headers[end][1].hex()):
        return None
    try:
        letter = msgspec.json.decode(headers[end][1], type=Letter)
    except UNREADABLE:
        return None
    after = (pair for pair in headers[end + 1 :] if pair[0] != FORM)
    own = (*headers[: _begin_of_ours(headers, end)], *after)
    return replace(letter, message=replace(letter.message, body=message.body, headers=own))


def _begin_of_ours(headers: Headers, end: int) -> int:
    """Where the headers of `record_of` begin, which end there. Those before may have names like ours, too."""
    names = [name for name, _ in headers[max(end - _ABOUTS, 0) : end]]
    ours = next((number for number, name in enumerate(reversed(names)) if not name.startswith(_ABOUT)), len(names))
    return end - ours


def is_stub(message: Message) -> bool:
    """Whether the record is a stub of ours, and not anybody's record with such a header."""
    name = message.header(STUB)
    if name is None or message.header(DEAD) is not None:
        return False
    try:
        about = msgspec.json.decode(message.body, type=_Stub)
    except UNREADABLE:
        return False
    return about.letter.encode("utf-8", "replace") == name and about.kept_in == _STORE


def stub_of(letter: Letter, topic: str) -> Parcel:
    """The record that stands on the topic for a letter that is too large for it, perhaps because of its key."""
    about = {"letter": letter.id, "reason": letter.reason, "error_type": letter.last.type, "in": _STORE}
    key = letter.message.key
    return Parcel(
        topic=topic,
        value=msgspec.json.encode({**about, "size": len(letter.message.body)}),
        key=key if key is None or len(key) <= _LONGEST_KEY else letter.id.encode(),
        headers=[(STUB, letter.id.encode()), (f"{_ABOUT}reason", letter.reason.encode())],
        at=letter.updated_at,
    )


class DeadLetterTopic:
    """The topic as a place for dead letters. It refuses what is too large for it; a stub refers to that."""

    name = NAME

    def __init__(self, writer: Writer, topic: str, *, form: Form = record_of, replaces_store: bool = False) -> None:
        self.topic = topic_named(topic)
        self.replaces_store = replaces_store
        self._writer = writer
        self._form = form

    async def bury(self, letters: Sequence[Letter]) -> Sequence[SendResult]:
        return await self._publish(letters, self._form)

    async def refer(self, letters: Sequence[Letter]) -> None:
        """Publish a stub of each, which says that the letter is in the store."""
        for answer in await self._publish(letters, stub_of):
            if answer.status is SendStatus.REFUSED:
                log.warning("topic %r takes no stub of a letter that is too large for it: see the store", self.topic)
            elif answer.status is not SendStatus.ACCEPTED:
                raise TransportUnavailable(NAME, answer.why)

    async def _publish(self, letters: Sequence[Letter], form: Form) -> list[SendResult]:
        return [
            result_of(error) for error in await self._writer.outcomes([form(letter, self.topic) for letter in letters])
        ]
