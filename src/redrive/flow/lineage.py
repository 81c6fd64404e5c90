"""The headers by which a message that was sent back finds its letter again.

They are believed only on the message they were made for, and only if a key of ours signed them (signing.py): user code
that copies headers to another message must not resolve somebody else's letter, and a forged or broken header is just a
header. `redrive-letter` is `ID.VERSION.SIGNATURE`, in one
header, so that whatever carries the id carries its proof.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from redrive.model import (
    LETTER_HEADER,
    WAITING,
    Headers,
    Letter,
    LetterId,
    Message,
    Reason,
    State,
    letter_id,
)
from redrive.proof import ring

LETTER = LETTER_HEADER
REPLAY, RETRIES, AFTER = "redrive-replay", "redrive-retries", "redrive-after"
BY_HAND, VERSION = "redrive-by-hand", "redrive-version"
_OURS = (LETTER, REPLAY, RETRIES, BY_HAND, VERSION)


class Lineage(Struct, frozen=True):
    """What a message was sent back from."""

    letter: LetterId
    retries: int
    replay: str | None
    by_hand: bool = False  # somebody asked for it, and it is no automatic retry
    version: int = 0  # of the letter's message: what it was edited to

    @property
    def was_retried(self) -> bool:
        """Whether it is a retry or a replay of a dead letter, and not only the next attempt of a parked message."""
        return self.retries > 0 or self.replay is not None or self.by_hand


def lineage(message: Message) -> Lineage | None:
    """The letter that the message was sent back from; None if it never was."""
    if not message.headers or message.header(LETTER) is None:
        return None
    return believed(message.headers, letter_id(message.source, message.id), message.source, message.id)


def claim_of(message: Message) -> Lineage | None:
    """What its headers say that it was sent back from, whoever wrote them; None if they name no letter of it."""
    return _claim(message.headers, letter_id(message.source, message.id))[0]


def believed(given: Headers, letter: LetterId, source: str, message_id: str) -> Lineage | None:
    """What headers say of that letter, whose message has that id; None if they name another, or we did not sign."""
    found, signature = _claim(given, letter)
    if found is None:
        return None
    return found if ring().believes(signature, *_signed(found, source, message_id)) else None


def _claim(given: Headers, letter: LetterId) -> tuple[Lineage | None, str]:
    """What headers say of that letter, and the signature of that."""
    headers = dict(given)  # of a repeat, the last one holds
    name, version, signature = _parts(headers.get(LETTER, b""))
    if name != letter:
        return None, ""
    replay = headers.get(REPLAY)
    found = Lineage(
        letter=letter,
        retries=_number(headers.get(RETRIES)),
        replay=replay.decode("ascii", "replace") if replay else None,
        by_hand=BY_HAND in headers,
        version=_number(version if signature else headers.get(VERSION)),
    )
    return found, signature


def named(value: bytes) -> LetterId:
    """The letter that a value of `redrive-letter` names, whoever wrote it."""
    return _parts(value)[0]


def _parts(value: bytes) -> tuple[str, bytes, str]:
    letter, _, rest = value.partition(b".")
    version, _, signature = rest.partition(b".")
    return letter.decode("ascii", "replace"), version, signature.decode("ascii", "replace")


def _signed(origin: Lineage, source: str, message_id: str) -> tuple[object, ...]:
    """What is signed, all of it."""
    id = message_id.encode("utf-8", "surrogatepass").hex()
    return origin.letter, _hex(source), id, origin.retries, origin.replay, origin.by_hand, origin.version


@lru_cache(maxsize=256)
def _hex(source: str) -> str:
    """Of a name that many messages share."""
    return source.encode("utf-8", "surrogatepass").hex()


def proof(origin: Lineage, source: str, message_id: str) -> bytes:
    """The value of `redrive-letter`; the bare id where there is no key."""
    signature = ring().sign(*_signed(origin, source, message_id))
    return f"{origin.letter}.{origin.version}.{signature}".encode() if signature else origin.letter.encode()


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else 0


def sent_back(letter: Letter, *, now: datetime, replay: str | None = None, by_hand: bool = False) -> Message:
    """The letter's message as it goes out again: same id, the bytes of its newest version, only our own headers added.

    A time to live that killed the message once must not kill it again. What was only parked goes on as if it had
    been delayed by its transport: with its attempts, its time to live and its replay, and its claim is no retry. So
    does what was behind another of its key, but for its time to live: that it waited is not its own doing.
    """
    was_parked = letter.reason in WAITING
    retries = letter.retries - (was_parked and letter.state is State.RETRYING)
    replay = letter.replay if replay is None and was_parked else replay
    is_first = letter.reason is Reason.PARKED and not retries and replay is None
    message = letter.message
    origin = Lineage(letter.id, retries, replay, by_hand, letter.version)
    ours = [(LETTER, proof(origin, message.source, message.id)), (RETRIES, b"%d" % retries)]
    if replay is not None:
        ours.append((REPLAY, replay.encode()))
    if by_hand:
        ours.append((BY_HAND, b"1"))
    if letter.version:
        ours.append((VERSION, b"%d" % letter.version))
    return replace(
        message,
        headers=(*(pair for pair in message.headers if pair[0] not in _OURS), *ours),
        expires_at=message.expires_at if is_first else None,
        attempt=message.attempt if was_parked else 1,
        enqueued_at=now,
    )


def bare(message: Message) -> Message:
    """Without our lineage headers: the message as its sender made it. Headers that only look like ours stay."""
    return message if lineage(message) is None else unsent(message)


def carried(message: Message) -> Headers:
    """The headers of ours that a message which was sent back carries, whosever letter they name."""
    return tuple(pair for pair in message.headers if pair[0] in _OURS)


def unsent(message: Message) -> Message:
    """Without the headers of ours that a message which was sent back carries, whosever letter they name."""
    headers = tuple(pair for pair in message.headers if pair[0] not in _OURS)
    return replace(message, headers=headers)


def dependencies(message: Message) -> tuple[str, ...]:
    """The ids of the messages whose letters must be resolved before this one's is retried."""
    after = message.header(AFTER)
    if after is None:
        return ()
    return tuple(name for name in after.decode("utf-8", "replace").split("\n") if name and name != message.id)


def said_version(number: int) -> str:
    """What the ledger says of the version that was sent: nothing, of a message that goes as it came."""
    return f"version {number}" if number else ""
