"""The trace that a message belongs to, by the W3C header that it carries."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?P<trace>[0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*", re.ASCII)
PLACE = "{trace_id}"
"""What stands in the address of a trace for its id."""


def trace_id_of(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """The id of the trace; None where no header names one."""
    for name, value in headers:
        found = _TRACEPARENT.fullmatch(value.decode("utf-8", "replace")) if name.lower() == "traceparent" else None
        if found and set(found["trace"]) != {"0"}:
            return found["trace"]
    return None
