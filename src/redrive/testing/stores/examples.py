"""Letters that a store has to keep: one of each kind, and many that differ in everything."""

from __future__ import annotations

import random
from datetime import timedelta

from redrive.model import Category, Edit, Failure, Letter, Reason, Stage, State
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.stores.backend import HOUR, MINUTE

EVERY_BYTE = bytes(range(256))
LETTERS = {
    "plain": make_letter(),
    "empty body": make_letter(make_message(body=b"")),
    "every byte": make_letter(make_message(body=EVERY_BYTE, key=EVERY_BYTE, headers=(("h", EVERY_BYTE),))),
    "a megabyte": make_letter(make_message(body=EVERY_BYTE * 4096)),
    "repeated headers": make_letter(make_message(headers=(("a", b"1"), ("b", b"\xff"), ("a", b""), ("A", b"2")))),
    "unicode": make_letter(
        make_message(id="Grüße-🚚", source="straße 🚏", tenant="テナント", correlation_id="\x00\u202e\n"),
        make_failure(message="naïve – 🧨 \x00", type="π.Fehler", stack="Traceback…\n\ttab", worker="w\u0301"),
    ),
    "words of SQL": make_letter(make_message(id="'; DROP TABLE letters; --", source='"x"', tenant="%_\\")),
    "several failures": make_letter(
        make_message(),
        *(make_failure(attempt=n, at=START + n * MINUTE, message=f"failure {n}") for n in range(1, 6)),
    ),
    "every field": make_letter(
        make_message(
            body=b"{",
            key=b"k",
            tenant="t",
            correlation_id="c",
            attempt=3,
            priority=-9,
            expires_at=START + timedelta(microseconds=1),
            origin="orders[3]@1007",
        ),
        Failure(
            type="shop.CardError",
            message="declined",
            category=Category.PERMISSION,
            retryable=False,
            at=START + timedelta(microseconds=999_999),
            attempt=3,
            stage=Stage.DECODE,
            code="HTTP 403",
            stack="a\nb",
            frames=("shop:charge", "shop.cards:pay"),
            worker="host:1",
            version="1.2.3",
            edition=2,
        ),
        state=State.EXHAUSTED,
        reason=Reason.UNDECODABLE,
        group="g",
        updated_at=START + HOUR,
        transport="kafka",
        next_retry_at=START + 2 * HOUR,
        retries=2,
        max_retries=5,
        resends=4,
        replay="r-1",
        depends_on=("m-1", "m-2"),
        expires_at=START + timedelta(days=30),
        foreign=True,
        version=2,
        edit=Edit(by="ada", at=START + HOUR, why="a reason", repair="r-2", restores=0),
        archived_from=State.SENT,
    ),
}


def corpus(number: int, seed: int = 1) -> list[Letter]:
    """Letters that differ in everything that can be asked for."""
    rng = random.Random(seed)
    return [_some_letter(rng, n) for n in range(number)]


def _some_letter(rng: random.Random, number: int) -> Letter:
    at = START + rng.randrange(6) * MINUTE  # several at the same time: paging has to tell them apart
    message = make_message(
        id=f"{rng.choice(['m', 'M', 'ä'])}-{number}",
        source=rng.choice(["orders", "mails", "straße"]),
        body=rng.choice([b"", b'{"Total": 12}', b"\xff\x00TOTAL\x00", "Größe".encode(), EVERY_BYTE]),
        key=rng.choice([None, b"", b"Customer-7", b"\xfe\xff"]),
        tenant=rng.choice([None, "acme", "Acme", "zeta"]),
        correlation_id=rng.choice([None, "trace-1", "TRACE-2"]),
        priority=rng.choice([-1, 0, 0, 5]),
    )
    failure = make_failure(
        type=rng.choice(["TimeoutError", "asyncio.TimeoutError", "shop.errors.Declined", "x.SMTPError", "x.Ünfall"]),
        message=rng.choice(["no such user 17", "Timed out", "größer als erlaubt", "50% off_"]),
        category=rng.choice(list(Category)),
        code=rng.choice([None, "SMTP 550", "HTTP 503"]),
        at=at,
    )
    state = rng.choice(list(State))
    flying = state in (State.RETRYING, State.REPLAYING) and rng.random() < 0.7
    return make_letter(
        message,
        failure,
        at=at,
        state=state,
        group=f"group-{rng.randrange(4)}",
        transport=rng.choice(["default", "kafka"]),
        next_retry_at=rng.choice([None, at + MINUTE, at + 2 * MINUTE]),
        expires_at=rng.choice([None, at + HOUR, at + 2 * HOUR]),
        owner=rng.choice(["worker-1", "worker-2"]) if flying else None,
        lease_until=at + rng.choice([1, 9]) * MINUTE if flying else None,
        depends_on=rng.choice([(), (), ("m-1",)]),
    )
