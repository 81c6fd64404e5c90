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
    consumer, producer = found.consumer(), found.producer()
    assert consumer["fetch.wait.max.ms"] == "9"
    assert "fetch.wait.max.ms" not in producer
    assert consumer["topic.metadata.refresh.interval.ms"] <= 5_000, "a new retry topic would not be read for minutes"
    assert (producer["linger.ms"], producer["acks"], producer["fetch.min.bytes"]) == ("0", "all", "5")


def test_nobody_can_turn_off_what_keeps_messages() -> None:
    found = options_of("kafka://a/?acks.=1&enable.auto.commit=true&enable.idempotence=false")
    assert found.consumer()["enable.auto.commit"] == "false"
    assert found.producer()["enable.idempotence"] == "true"


@pytest.mark.parametrize(
    ("url", "protocol", "login"),
    [
        ("kafka://a:9092/", None, (None, None, None)),
        ("kafka+ssl://a:9093/", "SSL", (None, None, None)),
        ("kafka://ann:s%40crt@a:9092/", "SASL_PLAINTEXT", ("PLAIN", "ann", "s@crt")),
        ("kafka+ssl://ann:s%40crt@a:9093/", "SASL_SSL", ("PLAIN", "ann", "s@crt")),
        (
            "kafka+ssl://ann:x@a:9093/?sasl.mechanisms=SCRAM-SHA-512",
            "SASL_SSL",
            ("SCRAM-SHA-512", "ann", "x"),
        ),
    ],
)
def test_tls_and_a_login_reach_every_client(url: str, protocol: str | None, login: tuple[str | None, ...]) -> None:
    found = options_of(url)
    for client in (found.client(), found.consumer(), found.producer()):
        assert client.get("security.protocol") == protocol
        assert tuple(client.get(f"sasl.{name}") for name in ("mechanisms", "username", "password")) == login


def test_certificates_of_a_client_are_given_to_the_driver_as_they_are() -> None:
    files = {"ssl.ca.location": "/etc/ca.pem", "ssl.certificate.location": "/etc/c.pem", "ssl.key.location": "/k.pem"}
    found = options_of("kafka+ssl://a/?" + "&".join(f"{name}={value}" for name, value in files.items()))
    assert found.client().items() >= {**files, "security.protocol": "SSL"}.items()


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
