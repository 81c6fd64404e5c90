"""A record does not choose where its letter goes back to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.collect.destinations import NOT_ALLOWED, confined
from redrive.collect.kafka import KafkaReader
from redrive.model import Letter, letter_id
from redrive.testing.builders import make_message
from redrive.testing.clock import START
from redrive.transports.base import Delivery

HEADERS = (
    ("kafka_dlt-original-topic", b"payments"),
    ("kafka_dlt-exception-fqcn", b"E" * 5_000),
    ("kafka_dlt-exception-message", b"x" * 1_000_000),
)


def read(source: str | None, *allowed: str) -> Letter:
    reader = confined(KafkaReader("orders.DLT", source=source), source, allowed)
    message = replace(make_message(id="m"), source="orders.DLT", headers=HEADERS)
    letter = reader(Delivery(message, token=None), START)
    assert letter is not None
    return letter


@pytest.mark.parametrize(
    ("source", "allowed", "goes_to", "transport"),
    [
        ("orders", (), "orders", "default"),
        ("orders", ("pay*",), "payments", "default"),
        (None, ("orders",), "payments", NOT_ALLOWED),
        (None, ("payments",), "payments", "default"),
        (None, (), "payments", "default"),
    ],
)
def test_a_record_names_only_what_is_allowed(
    source: str | None, allowed: tuple[str, ...], goes_to: str, transport: str
) -> None:
    letter = read(source, *allowed)
    assert (letter.message.source, letter.transport) == (goes_to, transport)
    assert letter.id == letter_id(goes_to, letter.message.id)


def test_what_it_says_of_its_error_is_bounded() -> None:
    assert len(read("orders").last.message) == 4_000
    assert len(read("orders").last.type) == 500
