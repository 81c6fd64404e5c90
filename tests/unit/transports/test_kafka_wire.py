"""A message as a record of Kafka, and any record as a message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive.model import Message
from redrive.testing.builders import make_failure, make_message
from redrive.testing.clock import START
from redrive.transports.kafka.wire import ENVELOPE, FAILURES, TOMBSTONE, Reading, headers_of, value_of
from redrive.transports.kafka.writer import delayed_parcel


class Raw:
    """What the driver gives."""

    def __init__(self, value: bytes | None, key: bytes | None = None, millis: int = 1_000) -> None:
        self._value, self._key, self._millis = value, key, millis

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def timestamp(self) -> tuple[int, int]:
        return 1, self._millis


def read(headers: Any, value: bytes | None = b"x", origin: str = "orders[0]@7") -> Message:
    return Reading("orders").full(Raw(value), list(headers), origin).message


def test_a_record_that_does_not_know_us_is_named_by_its_place() -> None:
    message = Reading("orders").plain(Raw(b"x", b"k"), "orders[0]@7")
    assert (message.id, message.origin, message.body, message.key) == ("orders[0]@7", "orders[0]@7", b"x", b"k")


@pytest.mark.parametrize(
    "forged",
    [b"", b"{", b"[]", b'{"id":1}', b'{"id":"x","at":0,"attempt":0}', b'{"id":"x","at":99999999999999999999}', b"\xff"],
)
def test_a_header_that_only_looks_like_ours_is_just_a_header(forged: bytes) -> None:
    message = read([(ENVELOPE, forged)])
    assert (message.id, message.headers) == ("orders[0]@7", ((ENVELOPE, forged),))


def test_a_tombstone_stays_one() -> None:
    message = Reading("orders").plain(Raw(None), "orders[0]@7")
    assert (message.body, message.header(TOMBSTONE)) == (b"", b"")
    assert value_of(message) is None
    assert TOMBSTONE not in dict(headers_of(message))
    assert value_of(make_message(body=b"")) == b""


def test_a_story_that_is_too_long_keeps_its_last_failure() -> None:
    failures = tuple(make_failure(attempt=number, stack="x" * 100_000) for number in range(1, 5))
    headers = headers_of(make_message(), due=START, failures=failures)
    arrived = Reading("orders").full(Raw(b"x"), [*headers], "orders[0]@7")
    assert [failure.attempt for failure in arrived.failures] == [4]
    assert arrived.due is not None
    assert FAILURES not in dict(arrived.message.headers)


def test_a_copy_on_a_retry_topic_is_as_young_as_its_retry_and_its_message_as_old_as_it_was() -> None:
    """A topic keeps records by their age: an old message would be dropped there before it is due."""
    old = make_message(enqueued_at=START - timedelta(days=30))
    copy = delayed_parcel(old, "orders.retry.1m", START, ())
    assert copy.at == START
    assert read(copy.headers).enqueued_at == old.enqueued_at


@pytest.mark.parametrize("millis", [-1, 10**18])
def test_a_time_that_no_calendar_has_is_no_trouble(millis: int) -> None:
    assert Reading("orders").plain(Raw(b"x", millis=millis), "o").enqueued_at.year <= 1970
