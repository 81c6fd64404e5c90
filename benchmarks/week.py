"""A week of letters in SQLite, as a console is opened on: 40 causes in 12 sources of 5 tenants, with its counts over
time and its index of texts. Made once, and kept outside the tree.

The week ends at a fixed moment, `END`: whoever serves it has a clock that says so (console_server.py), so that the file
of last month is still one of this week.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.actors import acting
from benchmarks.corpus import COUNTED, INSERT, connect, parts_of_schema, rows
from benchmarks.harness import say, scratch
from redrive import Redrive
from redrive.clock import SystemClock, sortable_id
from redrive.config.settings import Settings
from redrive.drivers.sqlite.database import SCHEMA_VERSION, SCRIPTS, clauses, sql
from redrive.forensics.fingerprint import fingerprint
from redrive.forensics.query import Query
from redrive.forensics.searchable import Searchable
from redrive.forensics.series import Count, Row, buried, resolved, rows_of
from redrive.model import Category, Failure, Letter, Message, Reason, State, letter_id
from redrive.service import Service

END = datetime(2026, 3, 2, 12, tzinfo=UTC)
SPAN = timedelta(days=7)
SOURCES = tuple(
    f"{system}.{queue}" for system in ("mail", "shop", "billing", "files") for queue in ("orders", "notices", "reports")
)
TENANTS = ("acme", "globex", "initech", "umbrella", "hooli")
CAUSES = 40
_ERRORS: tuple[tuple[str, str, Category], ...] = (
    ("TimeoutError", "no answer within 5 s", Category.TRANSIENT),
    ("ConnectionRefusedError", "[Errno 111] 10.0.3.17:5432", Category.NETWORK),
    ("httpx.HTTPStatusError", "429 Too Many Requests", Category.RESOURCE),
    ("shop.errors.NotAllowed", "charged already", Category.PERMISSION),
    ("msgspec.ValidationError", "Expected `int`, got `str` - at `$.total`", Category.VALIDATION),
    ("KeyError", "'sku'", Category.PERMANENT),
    ("smtplib.SMTPRecipientsRefused", "550 5.1.1 no such user", Category.PERMANENT),
    ("decimal.InvalidOperation", "[<class 'decimal.ConversionSyntax'>]", Category.VALIDATION),
)
_STATES = (State.PENDING,) * 3 + (State.EXHAUSTED,) * 4 + (State.RESOLVED,) * 2 + (State.ARCHIVED,)
_SERIES = clauses("redrive.stores.sqlite", "series")
_TEXTS = clauses("redrive.stores.sqlite", "texts")
_TOGETHER = 10_000
_MINUTES = timedelta(days=2)  # that upkeep would have kept


class Week(Struct, frozen=True):
    """The file, and how many letters are in it."""

    path: Path
    count: int


def week(count: int) -> Week:
    """Made now, if it was not made before for this schema and these letters."""
    scripts = "".join(sql("redrive.drivers.sqlite", name) for name in SCRIPTS)
    rules = Searchable.of(Settings().redact).rules
    letters = msgspec.msgpack.encode([letter(number, count) for number in range(0, count, count // 100)])
    key = sha256((scripts + rules + INSERT).encode() + letters).hexdigest()[:12]
    path = scratch() / f"week-{count}-{key}.db"
    if not path.exists():
        for older in scratch().glob(f"week-{count}-*"):
            older.unlink()
        say(f"  making a week of {count:,} letters in {path} (once)")
        _make(path, count)
    return Week(path, count)


def letter(number: int, count: int) -> Letter:
    """The same number makes the same letter. Causes are as unlike in size as real ones: the largest has a fifth."""
    chance = number * 2654435761 % (1 << 32)
    cause = int(CAUSES * (chance / (1 << 32)) ** 2.2)
    source, tenant = SOURCES[cause % len(SOURCES)], TENANTS[chance // 64 % len(TENANTS)]
    at = END - SPAN + SPAN * number / count
    message = Message(
        id=sortable_id(number, b"redrive-week"[:10]),
        source=source,
        body=_body(number, chance, tenant),
        enqueued_at=at - timedelta(seconds=40),
        headers=(("content-type", b"application/json"), ("x-request-id", b"req-%012x" % chance)),
        tenant=tenant,
        correlation_id=f"req-{chance:012x}",
    )
    failures = _failures(cause, at, chance)
    return Letter(
        id=letter_id(source, message.id),
        message=message,
        failures=failures,
        state=_STATES[chance // 512 % len(_STATES)],
        reason=Reason.ATTEMPTS if failures[-1].retryable else Reason.PERMANENT,
        group=_groups.get(cause) or _grouped(cause, failures[-1]),
        created_at=at,
        updated_at=at,
    )


_groups: dict[int, str] = {}


def _grouped(cause: int, failure: Failure) -> str:
    _groups[cause] = fingerprint(failure)
    return _groups[cause]


def _body(number: int, chance: int, tenant: str) -> bytes:
    order = {
        "order": f"ord-{number:09d}",
        "customer": {"id": chance % 5000, "email": f"customer-{chance % 5000:04d}@example.com", "tenant": tenant},
        "items": [{"sku": f"SKU-{chance % 90:04d}", "n": chance % 9, "price": 1250}],
        "plan": ("free", "pro", "team")[chance % 3],
        "password": "hunter2Xq",
        "total": chance % 100_000,
        "placed_at": "2026-02-27T12:00:00Z",
    }
    return msgspec.json.encode(order)


def _failures(cause: int, at: datetime, chance: int) -> tuple[Failure, ...]:
    type, text, category = _ERRORS[cause % len(_ERRORS)]
    retryable = category in (Category.TRANSIENT, Category.NETWORK, Category.RESOURCE)
    attempts = 3 if retryable else 1
    stack = "".join(f'  File "shop/step_{cause}.py", line {line}, in step_{line}\n' for line in range(8))
    return tuple(
        Failure(
            type=type,
            message=text,
            category=category,
            retryable=retryable,
            at=at - timedelta(seconds=15 * (attempts - attempt)),
            attempt=attempt,
            stack=f"{stack}{type}: {text}\n",
            frames=(f"shop.step_{cause}:step_7",),
            worker=f"web-{chance % 4}:4711",
            version=f"1.{cause % 4}.{chance % 2}",
        )
        for attempt in range(1, attempts + 1)
    )


# -- making it -------------------------------------------------------------------------------------------------------


def _make(path: Path, count: int) -> None:
    """Under another name until it is whole: an interrupted one is made again."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    connection = connect(part, ("journal_mode=OFF", "synchronous=OFF", "cache_size=-512000"))
    tables, indexes = parts_of_schema()
    connection.executescript(tables)
    source, searchable = (letter(number, count) for number in range(count)), Searchable.of(Settings().redact)
    counts: Counter[Row] = Counter()
    done = 0
    while some := list(islice(source, _TOGETHER)):
        connection.execute("BEGIN")
        connection.executemany(INSERT, rows(some))
        texts = ((done + place, searchable.text(each)) for place, each in enumerate(some, 1))
        connection.executemany(_TEXTS["insert"], texts)
        connection.execute("COMMIT")
        counts.update(rows_of(_counts(some)))
        done += len(some)
        say(f"    {done:,}")
    connection.executescript(indexes)
    connection.executescript(COUNTED)
    connection.execute("DELETE FROM unsearched")
    connection.execute(_TEXTS["adopt"], (searchable.rules,))
    connection.execute("BEGIN")
    connection.executemany(_SERIES["sum_up"], _kept(counts))
    connection.execute("COMMIT")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    asyncio.run(_replays(part))
    part.rename(path)


def _counts(letters: Sequence[Letter]) -> Iterator[Count]:
    yield from buried(letters)
    for each in letters:
        if each.state is State.RESOLVED:
            yield from resolved([(each.message.source, each.category)], each.created_at + timedelta(minutes=20))


def _kept(counts: Counter[Row]) -> Iterator[tuple[object, ...]]:
    """All but the counts by minute that upkeep has forgotten by now."""
    oldest = (END - _MINUTES).timestamp()
    return ((*row, number) for row, number in sorted(counts.items()) if row[0] > 60 or row[1] >= oldest)


class WeekClock(SystemClock):
    """The week has just ended when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self._began = self.elapsed()

    def now(self) -> datetime:
        return END + timedelta(seconds=self.elapsed() - self._began)


async def _replays(path: Path) -> None:
    """Some replays that are over, and one that somebody paused; and messages that wait in each queue."""
    async with Redrive(transport=f"sqlite:///{path}", settings=Settings(), clock=WeekClock()) as app:
        service, actor = Service(app), acting("bench")
        for number in range(8):
            since = END - timedelta(hours=number + 2)
            query = Query(states=(State.EXHAUSTED,), sources=(SOURCES[number],), since=since)
            replay = await service.replay(query, actor=actor, rate=1, reason="deployed")
            await (service.cancel_replay if number else service.pause_replay)(replay.id, actor=actor)
        for source in SOURCES:
            await app.send_messages([app.message(source, {"n": number}) for number in range(50)])
