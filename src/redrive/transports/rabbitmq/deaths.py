"""What RabbitMQ says of a message that it has moved. `x-death` lists the queues that sent it away, the latest first,
with why and how often.

A copy that we publish carries none of these headers, so that RabbitMQ and we count anew from it. What they said is kept
in the header `redrive-deaths`, and stands in `x-death` again, with what came after it, when the message is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redrive.transports.rabbitmq.fields import Field, field_of, items_in, table_in, value_of

X_DEATH = "x-death"
DEATHS = "redrive-deaths"
DEATH_HEADERS = (X_DEATH, "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason")
_X_DEATH = X_DEATH.encode()
_RAW = tuple(name.encode() for name in DEATH_HEADERS)
_COUNT = b"count"
_LARGEST = 1 << 31


def deaths_in(fields: Mapping[bytes, Field]) -> dict[bytes, Field]:
    """The headers about its deaths, as RabbitMQ would have written them had no copy been made."""
    now = {name: fields[name] for name in _RAW if name in fields}
    before = {name: field for name, field in table_in(fields.get(DEATHS.encode())).items() if name in _RAW}
    if not now or not before:
        return now or before
    both = _merged(items_in(now.get(_X_DEATH, Field(b"V"))), items_in(before.get(_X_DEATH, Field(b"V"))))
    return {**now, **before, _X_DEATH: field_of(both)}


def kept_deaths(fields: Mapping[bytes, Field], source: str) -> dict[bytes, Field]:
    """Those that are to be kept. Waits in the retry queues of a source that rejected nothing are not: they are the way
    of our own copies."""
    found = deaths_in(fields)
    if _X_DEATH not in found or rejections({X_DEATH: value_of(found[_X_DEATH])}, source):
        return found
    waits = source.encode() + b".retry"
    left = [death for death in items_in(found[_X_DEATH]) if not _queue(death).startswith(waits)]
    return {**found, _X_DEATH: field_of(left)} if left else {}


def _queue(death: Field) -> bytes:
    return table_in(death).get(b"queue", Field(b""))[5:]


def _merged(newer: list[Field], older: list[Field]) -> list[Field]:
    """One entry for each queue and reason: as it was first, with the counts of both, where the newer one stands."""
    before = {_key(death): death for death in older}
    merged = [_sum(death, before.pop(_key(death), None)) for death in newer]
    return merged + [death for death in older if _key(death) in before]


def _key(death: Field) -> tuple[Field | None, Field | None]:
    fields = table_in(death)
    return fields.get(b"queue"), fields.get(b"reason")


def _sum(newer: Field, older: Field | None) -> Field:
    if older is None:
        return newer
    fields = table_in(older)
    count = _count(value_of(newer)) + _count(value_of(older))
    return field_of({**fields, _COUNT: Field(b"l" + count.to_bytes(8, "big"))})


def deaths_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of `x-death` that are as RabbitMQ writes them, the latest first."""
    deaths = table.get(X_DEATH)
    found = deaths if isinstance(deaths, list) else []
    return [death for death in found if isinstance(death, dict) and isinstance(death.get("queue"), str)]


def rejections(table: Mapping[str, Any], queue: str) -> int:
    """How often that queue rejected it, by x-death. Whatever else stands there is nobody's count."""
    if X_DEATH not in table:
        return 0  # as of almost all
    deaths = deaths_of(table)
    return sum([_count(death) for death in deaths if death["queue"] == queue and death.get("reason") == "rejected"])


def _count(death: Any) -> int:
    count = death.get("count") if isinstance(death, dict) else 0
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 < count < _LARGEST else 0


def first_way(table: Mapping[str, Any], queue: str) -> str:
    """Exchange and key by which a message came to that queue, if RabbitMQ has sent it away from there."""
    for death in deaths_of(table):
        if death["queue"] == queue and death.get("exchange"):
            keys = death.get("routing-keys")
            return f"{death['exchange']}/{keys[0] if isinstance(keys, list) and keys else ''}"
    return ""
