"""What a worker that is not ours reports."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from redrive.model import Letter, LetterId


class Died(Struct, frozen=True, tag="died"):
    """A message died for good; this is its letter."""

    letter: Letter


class Succeeded(Struct, frozen=True, tag="succeeded"):
    """A message that was sent back from a letter succeeded."""

    letter: LetterId
    at: datetime
    replay: str | None = None


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
