"""The messages and letters that are measured with: the same for every contender, and like those of real systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from redrive.clock import sortable_id
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Category, Failure, Letter, Message, Reason, State, letter_id

T = TypeVar("T")
BODY_SIZE = 335
BATCH = 500  # letters
LETTERS_FROM = datetime(2025, 1, 1, tzinfo=UTC)
_SPACING = timedelta(milliseconds=40)  # a million of them span half a day
_SOURCES = ("orders", "payments", "emails", "invoices", "shipments", "webhooks", "exports", "refunds")
_TENANTS = tuple(f"tenant-{number}" for number in range(40))
_STATES = (State.PENDING,) * 6 + (State.EXHAUSTED,) * 2 + (State.RESOLVED, State.ARCHIVED)
_CAUSES: tuple[tuple[str, str, Category, str | None], ...] = (
    ("TimeoutError", "no answer within 5 s", Category.TRANSIENT, None),
    ("ConnectionRefusedError", "[Errno 111] 10.0.3.17:5432", Category.NETWORK, "ECONNREFUSED"),
    ("httpx.HTTPStatusError", "429 Too Many Requests", Category.RESOURCE, "429"),
    ("shop.errors.NotAllowed", "charged already", Category.PERMISSION, "403"),
    ("msgspec.ValidationError", "expected `int` at `$.n`", Category.VALIDATION, None),
    ("KeyError", "'sku'", Category.PERMANENT, None),
)


def body(number: int) -> bytes:
    """An order of exactly 335 bytes of JSON."""
    order = {
        "order": f"ord-{number:09d}",
        "customer": {"id": number % 5000, "email": f"customer-{number % 5000:04d}@example.com", "country": "PT"},
        "items": [{"sku": "SKU-0001-BLUE", "n": 2, "price": 1250}, {"sku": "SKU-0777-RED", "n": 1, "price": 9900}],
        "currency": "EUR",
        "total": 12400,
        "placed_at": "2025-01-01T12:00:00Z",
        "note": "",
    }
    order["note"] = "x" * (BODY_SIZE - len(msgspec.json.encode(order)))
    return msgspec.json.encode(order)


def bodies(count: int) -> list[bytes]:
    """Made before the clock starts."""
    return [body(number) for number in range(count)]


def letters(start: int, count: int) -> Iterator[Letter]:
    """Letters of about 1.6 KB as workers bury them: three attempts, each with its stack; 300 causes, few of them
    frequent, over 8 sources, 6 categories and 40 tenants; 500 in a row of one source, since a worker settles one
    source at a time. The same numbers make the same letters."""
    return (letter(number) for number in range(start, start + count))


def fresh(start: int, count: int) -> Iterator[Letter]:
    """The same when they are recorded: nobody has retried, resolved or archived them yet."""
    return (replace(letter, state=State.PENDING) for letter in letters(start, count))


def letter(number: int) -> Letter:
    chance = _Chance(number)
    source = _SOURCES[number // BATCH % len(_SOURCES)]
    created = LETTERS_FROM + number * _SPACING
    message = Message(
        id=sortable_id(number, b"redrive-bench"[:10]),
        source=source,
        body=body(number),
        enqueued_at=created - timedelta(seconds=40),
        headers=(("content-type", b"application/json"),),
        key=b"customer-%d" % (number % 5000),
        tenant=chance.choice(_TENANTS),
        correlation_id=f"req-{number:012x}",
        origin=f"{source}@{number}",
    )
    failures = _failures(chance, created)
    return Letter(
        id=letter_id(source, message.id),
        message=message,
        failures=failures,
        state=chance.choice(_STATES),
        reason=Reason.ATTEMPTS if failures[-1].retryable else Reason.PERMANENT,
        group=_group(failures[-1]),
        created_at=created,
        updated_at=created,
    )


def _failures(chance: _Chance, created: datetime) -> tuple[Failure, ...]:
    type, text, category, code = chance.choice(_CAUSES)
    step = chance.few(50)
    return tuple(
        Failure(
            type=type,
            message=text,
            category=category,
            retryable=category in (Category.TRANSIENT, Category.NETWORK, Category.RESOURCE),
            at=created - timedelta(seconds=3 - attempt),
            attempt=attempt,
            code=code,
            stack=_stack(type, text, step),
            frames=(f"shop.steps:step_{step}",),
            worker="web-1:4711",
        )
        for attempt in (1, 2, 3)
    )


def _stack(type: str, text: str, step: int) -> str:
    return f'  File "shop/steps.py", line {step}, in step_{step}\n{type}: {text}\n'


class _Chance:
    """Cheap chance that is the same for the same number: a million letters are made with it."""

    def __init__(self, number: int) -> None:
        self._bits = int.from_bytes(blake2b(number.to_bytes(8, "big"), digest_size=16).digest(), "big")

    def choice(self, of: Sequence[T]) -> T:
        self._bits, pick = divmod(self._bits, len(of))
        return of[pick]

    def few(self, of: int) -> int:
        """1 to that many; the first few have most of it."""
        self._bits, pick = divmod(self._bits, 10_000)
        return min(int((1 - pick / 10_000) ** -1.25), of)


_groups: dict[tuple[str, ...], str] = {}


def _group(failure: Failure) -> str:
    """Its fingerprint; there are 300 of them, so each is computed once."""
    cause = (failure.type, *failure.frames)
    if cause not in _groups:
        _groups[cause] = fingerprint(failure)
    return _groups[cause]


def batches(items: Sequence[T], size: int = BATCH) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]
