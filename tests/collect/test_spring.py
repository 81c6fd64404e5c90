"""Spring's headers, as nobody has prepared them: what Spring itself writes is in test_java.py."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from redrive.collect.foreign import failure_of, letter_of
from redrive.collect.kafka import connect
from redrive.collect.spring import spring
from redrive.testing.builders import make_message
from redrive.testing.clock import START

NAMES = [
    *(f"{prefix}original-{what}" for prefix in ("kafka_", "kafka_dlt-") for what in ("topic", "partition", "offset")),
    *(f"{prefix}exception-{what}" for prefix in ("kafka_", "kafka_dlt-", "kafka_key-") for what in ("fqcn", "message")),
    "kafka_original-timestamp",
    "kafka_deliveryAttempt",
    "retry_topic-attempts",
    "retry_topic-original-timestamp",
    "kafka_replyTopic",
    "__connect.errors.topic",
    "__connect.errors.partition",
    "__connect.errors.offset",
    "trace",
]


def test_of_several_deaths_the_first_says_where_it_came_from_and_the_last_why_it_died() -> None:
    """Spring appends: somebody had sent it back from its DLT with all its headers."""
    headers = [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", struct.pack(">i", 1)),
        ("kafka_dlt-original-offset", struct.pack(">q", 5)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", 1_700_000_000_000)),
        ("kafka_dlt-exception-fqcn", b"first"),
        ("kafka_dlt-original-topic", b"orders.DLT"),
        ("kafka_dlt-original-partition", struct.pack(">i", 0)),
        ("kafka_dlt-original-offset", struct.pack(">q", 9)),
        ("kafka_dlt-exception-fqcn", b"last"),
        ("kafka_deliveryAttempt", struct.pack(">i", 4)),
    ]
    said = spring(make_message(headers=tuple(headers)), START)
    assert said is not None
    assert (said.source, said.place, said.failure.type) == ("orders", "orders[1]@5", "last")
    assert (said.failure.attempt, said.failure.at) == (4, START)
    assert said.message.enqueued_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert said.message.headers == ()


def test_a_key_that_could_not_be_read_is_the_failure() -> None:
    headers = (("kafka_dlt-key-exception-fqcn", b"DeserializationException"), ("kafka_dlt-original-topic", b"orders"))
    said = spring(make_message(headers=headers), START)
    assert said is not None
    assert (said.failure.type, said.place) == ("DeserializationException", None)


def test_headers_of_a_message_that_only_was_answered_or_counted_say_nothing_of_a_death() -> None:
    headers = (("kafka_replyTopic", b"answers"), ("kafka_deliveryAttempt", struct.pack(">i", 1)))
    assert spring(make_message(headers=headers), START) is None


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=12) | st.just(b"\xff" * 8)), max_size=12))
def test_whatever_stands_there_becomes_a_letter(headers: list[tuple[str, bytes]]) -> None:
    message = make_message(headers=tuple(headers))
    for read in (spring, connect):
        said = read(message, START)
        if said is not None:
            letter_of(said.message, said.failure, transport="default", now=START)
            assert 1 <= said.failure.attempt < 1 << 31
            assert said.place is None or "@-" not in said.place
            assert {"kafka_replyTopic", "trace"} & dict(headers).keys() <= dict(said.message.headers).keys()
    assert failure_of("E", "", START, attempt=1 << 62).attempt == 1
