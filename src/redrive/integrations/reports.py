"""What a worker that is not ours reports."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from redrive.model import Headers, Letter, LetterId, MessageId


class Died(Struct, frozen=True, tag="died"):
    """A message died for good; this is its letter."""

    letter: Letter


class Succeeded(Struct, frozen=True, tag="succeeded"):
    """A message says that it was sent back from a letter, and succeeded. A worker has no keys: who brings the report to
    the store sees whether `headers` prove it.

    bare     the worker's own encoder left no place in the message for a proof
    digest   of its body, if not we but somebody with the worker's own tools put it back: it proves nothing else
    """

    letter: LetterId
    at: datetime
    replay: str | None = None
    source: str = ""
    message: MessageId = ""
    headers: Headers = ()  # none: the report of an older version
    bare: bool = False
    digest: str = ""


class Noted(Struct, frozen=True, tag="noted"):
    """Something that the store keeps as a document: how a worker is set up, for `redrive doctor`."""

    kind: str
    id: str
    body: dict[str, Any]


Report: TypeAlias = Died | Succeeded | Noted
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def packed(report: Report) -> bytes:
    return _encoder.encode(report)


def unpacked(data: bytes) -> Report:
    """Raises one of `redrive.untrusted.UNREADABLE` for what is no report."""
    return _decoder.decode(data)
