"""What a shadow replay and its process say to each other: values, each behind its length."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from redrive.model import Failure, Message

LENGTH = 4


class Ready(Struct, frozen=True, tag="ready"):
    """The handler was found."""

    seconds: float  # that one attempt may take


class Refused(Struct, frozen=True, tag="refused"):
    """The handler cannot be run, and why."""

    why: str


class Tried(Struct, frozen=True, tag="tried"):
    """What became of one message, and how many messages it would have sent to each source."""

    failure: Failure | None
    group: str  # of the failure; empty: there is none
    sent: dict[str, int]


Answer: TypeAlias = Ready | Refused | Tried
_encode = msgspec.msgpack.Encoder().encode
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_messages = msgspec.msgpack.Decoder(Message)


def framed(value: Answer | Message) -> bytes:
    """The bytes of a value, behind their length."""
    data = _encode(value)
    return len(data).to_bytes(LENGTH, "big") + data


def answer_in(data: bytes) -> Answer:
    return _answers.decode(data)


def message_in(data: bytes) -> Message:
    return _messages.decode(data)
