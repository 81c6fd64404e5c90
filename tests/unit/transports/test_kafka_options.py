"""What a URL of Kafka says, and what is wrong with one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import ConfigError, RedriveError
from redrive.transports.kafka.counters import open_counters
from redrive.transports.kafka.options import options_of


def test_a_url_with_everything() -> None:
    found = options_of(
        "kafka://a:9092,b:9092/?group=billing&start=latest&counters=redis://r/0&retry_topics=10s,1m"
        "&dlq=orders.dlq&dlq_only=yes&most_open=7&fetch.min.bytes=5&consumer.fetch.wait.max.ms=9&producer.linger.ms=0"
    )
    assert (found.servers, found.group, found.start, found.dlq, found.dlq_only) == (
        *("a:9092,b:9092", "billing", "latest", "orders.dlq", True),
    )
    assert found.retry_topics == (timedelta(seconds=10), timedelta(minutes=1))
    assert found.rungs("orders") == ["orders.retry.10s", "orders.retry.1m"]
    consumer, producer = found.consumer(timedelta(seconds=30)), found.producer()
    assert (consumer["fetch.wait.max.ms"], consumer["session.timeout.ms"]) == ("9", 30_000)
    assert "fetch.wait.max.ms" not in producer
    assert (producer["linger.ms"], producer["acks"], producer["fetch.min.bytes"]) == ("0", "all", "5")


def test_nobody_can_turn_off_what_keeps_messages() -> None:
    found = options_of("kafka://a/?acks.=1&enable.auto.commit=true&enable.idempotence=false")
    assert found.consumer(timedelta(seconds=30))["enable.auto.commit"] == "false"
    assert found.producer()["enable.idempotence"] == "true"


def test_a_login() -> None:
    client = options_of("kafka+ssl://ann:s%40crt@a:9093/").client()
    assert client["security.protocol"] == "SASL_SSL"
    assert (client["sasl.username"], client["sasl.password"]) == ("ann", "s@crt")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("kafka:///?group=x", "is like kafka://host:9092"),
        ("kafka://a/orders", "topics are sources"),
        ("kafka://a/?grup=x", "did you mean 'group'"),
        ("kafka://a/?group=", "must not be empty"),
        ("kafka://a/?start=middle", "it is earliest or latest"),
        ("kafka://a/?retry_topics=1m,10s", "from the shortest to the longest"),
        ("kafka://a/?retry_topics=10", "is not a duration"),
        ("kafka://a/?most_open=0", "1 or more"),
        ("kafka://a/?dlq=no/topic", "is no name of a Kafka topic"),
    ],
)
def test_what_is_wrong_is_said(url: str, says: str) -> None:
    with pytest.raises(RedriveError, match=says.replace("?", r"\?")):
        options_of(url)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        options_of("kafka://ann:secret@a/orders")
    assert "secret" not in str(caught.value)


def test_counters_are_kept_where_we_know_to() -> None:
    with pytest.raises(ConfigError, match="memory://, sqlite:/// or redis://"):
        open_counters("mysql://x")
