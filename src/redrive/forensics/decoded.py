"""A body in a schema that a system knows, as JSON. Bytes in it are masked as bytes: Base64 would hide a secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from redrive.forensics.redact import Redactor
from redrive.forensics.views import DecodedBody, masked

_MOST = 16 << 10  # bytes of one value


class Decoded(Struct, frozen=True, kw_only=True):
    """What a system reads in a body, unmasked."""

    format: str  # as people call it: Protobuf, Avro
    schema: str
    value: Any  # as JSON has it; bytes are given as they are


def masked_body(decoded: Decoded, redactor: Redactor) -> DecodedBody:
    """The same for everybody. What is long is cut, as in a body."""
    said = _json(decoded, lambda data: masked(partial(redactor.body, limit=_MOST), data))
    return DecodedBody(decoded.format, decoded.schema, masked(redactor.body, said.encode()))


def whole_body(decoded: Decoded) -> DecodedBody:
    """The same for somebody who may see its secrets."""
    said = _json(decoded, lambda data: data.decode("utf-8", "backslashreplace"))
    return DecodedBody(decoded.format, decoded.schema, said)


def _json(decoded: Decoded, text_of: Callable[[bytes], str]) -> str:
    return json.dumps(decoded.value, ensure_ascii=False, default=text_of)
