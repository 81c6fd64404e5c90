"""A dead-letter topic: letters are published there, confirmed, before their message is committed.

It stands in the place of the store (`Letters.record`), so that the path of a message stays the one it is: publish, then
clear the counter, then commit. In addition to the store, or instead of it; whoever reads the topic then writes the
letters down (`letter_in` makes them from what `grave_of` has written).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from redrive.model import Headers, Letter, Message, Reason
from redrive.stores.base import Letters, Store
from redrive.stores.relayed import RelayedLetters, RelayedStore
from redrive.transports.kafka.driver import log
from redrive.transports.kafka.options import topic_named
from redrive.transports.kafka.wire import headers_of, value_of
from redrive.transports.kafka.writer import Parcel, Writer, raise_unless_too_large

Grave: TypeAlias = Callable[[Letter, str], Parcel]
"""How a letter looks on that topic. A ready system brings the form of its contract."""
DEAD = "redrive-dead"
"""The whole letter as JSON, less the body, which is the record's value."""
STUB = "redrive-stub"
"""The id of a letter that was too large for the topic: its body is in the store."""
FORM = "redrive-dlq-form"
"""What the value is, where it is not the body of the dead message: the full name of a message of protobuf."""
_ABOUT = "redrive-dlq-"
_LONGEST_KEY = 256  # of a stub


def grave_of(letter: Letter, topic: str) -> Parcel:
    """Key, value and headers as they were; why it died in headers that people and programs can read."""
    message, last = letter.message, letter.last
    bare = replace(letter, message=replace(message, body=b"", headers=()))
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
            (DEAD, msgspec.json.encode(bare)),
        ],
        at=letter.updated_at,
    )


def letter_in(headers: Headers, message: Message) -> Letter | None:
    """The letter that `grave_of` wrote; None if somebody else wrote that record, or if it is a stub."""
    found = dict(headers)
    if DEAD not in found or STUB in found:
        return None
    try:
        letter = msgspec.json.decode(found[DEAD], type=Letter)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    own = tuple(pair for pair in headers if pair[0] != DEAD and not pair[0].startswith(_ABOUT))
    return replace(letter, message=replace(letter.message, body=message.body, headers=own))


def stub_of(letter: Letter, topic: str) -> Parcel:
    """What stands on the topic for a letter that is too large for it, perhaps because of its key."""
    about = {"letter": letter.id, "reason": letter.reason, "error_type": letter.last.type, "in": "store"}
    key = letter.message.key
    return Parcel(
        topic=topic,
        value=msgspec.json.encode({**about, "size": len(letter.message.body)}),
        key=key if key is None or len(key) <= _LONGEST_KEY else letter.id.encode(),
        headers=[(STUB, letter.id.encode()), (f"{_ABOUT}reason", letter.reason.encode())],
        at=letter.updated_at,
    )


class DlqStore(RelayedStore):
    """A store whose new letters are published too, or only."""

    def __init__(
        self, store: Store, writer: Writer, *, topic: str, grave: Grave = grave_of, also_stored: bool = True
    ) -> None:
        super().__init__(store, DlqLetters(store.letters, writer, topic_named(topic), grave, also_stored))


class DlqLetters(RelayedLetters):
    """Published first: a letter in the store whose message was given back would not be resolved by its success."""

    def __init__(self, letters: Letters, writer: Writer, topic: str, grave: Grave, also_stored: bool) -> None:
        super().__init__(letters)
        self._writer = writer
        self._topic = topic
        self._grave = grave
        self._also_stored = also_stored

    async def record(self, letters: Sequence[Letter]) -> None:
        dead = [letter for letter in letters if letter.reason is not Reason.PARKED]
        too_large = await self._publish(dead, self._grave)
        stored = letters if self._also_stored else [one for one in letters if one not in dead or one in too_large]
        if stored:
            await self.behind.record(stored)
        if await self._publish(too_large, stub_of):
            log.warning("topic %r takes no stub of a letter that is too large for it: see the store", self._topic)

    async def _publish(self, letters: Sequence[Letter], form: Grave) -> list[Letter]:
        """Returns those that the topic refuses for their size."""
        results = await self._writer.outcomes([form(letter, self._topic) for letter in letters])
        raise_unless_too_large(results)
        return [letter for letter, error in zip(letters, results, strict=True) if error is not None]
