"""Field tables of AMQP: every type goes out as the bytes that came in, whatever Python makes of it."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.transports.rabbitmq.deaths import deaths_in, kept_deaths
from redrive.transports.rabbitmq.fields import Field, Malformed, field_of, fields_in, table_of, value_of, values_in

VALUES = [
    *(None, True, False, 0, -1, 2**31 - 1, 2**31, -(2**63), 0.87, float("inf"), "", "é", b"\xff", b"text"),
    *(Decimal("-1.50"), Decimal("12"), datetime(2026, 11, 16, tzinfo=UTC), [], [1, [2]], {}, {"a": {"b": [None]}}),
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_of_python_comes_back_as_it_went(value: Any) -> None:
    assert values_in(table_of({"x": value})) == {"x": value}


@pytest.mark.parametrize("value", [..., 2**63, Decimal("NaN"), Decimal(2**40)], ids=str)
def test_what_amqp_has_no_type_for_is_an_error(value: Any) -> None:
    with pytest.raises(Malformed):
        field_of(value)
    with pytest.raises(Malformed):
        table_of({"n" * 256: 1})


@given(st.binary(max_size=200))
def test_bytes_that_are_no_table_are_read_as_far_as_they_are_one(data: bytes) -> None:
    fields = fields_in(data)
    assert all(isinstance(field, Field) and field for field in fields.values())
    values_in(data)
    assert fields_in(table_of(fields)) == fields, "and what was read goes out as it came"


def test_tables_deep_in_each_other_are_read_and_the_deepest_are_bytes() -> None:
    field = Field(b"t\1")
    for _ in range(5000):
        field = Field(b"A" + struct.pack(">I", len(field)) + field)
    value, depth = value_of(field), 0
    while isinstance(value, list):
        [value], depth = value, depth + 1
    assert (depth, type(value)) == (20, bytes)


# -- what RabbitMQ has said of a message -----------------------------------------------------------------------------


def death(queue: str, reason: str, count: int, exchange: str = "") -> dict[str, Any]:
    return {"queue": queue, "reason": reason, "count": count, "exchange": exchange, "routing-keys": ["k"]}


def fields_of(**headers: Any) -> dict[bytes, Field]:
    return fields_in(table_of({name.replace("_", "-"): value for name, value in headers.items()}))


def shown(fields: dict[bytes, Field]) -> Any:
    return [(one["queue"], one["reason"], one["count"], one["exchange"]) for one in value_of(fields[b"x-death"])]


def test_what_was_said_before_a_copy_and_after_it_is_one_story() -> None:
    before = kept_deaths(
        fields_of(
            x_death=[death("q.retry", "expired", 2, "retry.q"), death("q", "rejected", 2, "events")],
            x_first_death_queue="q",
        ),
        "q",
    )
    now = fields_of(redrive_deaths=before, x_death=[death("q.retry", "expired", 1), death("q", "rejected", 1)])
    assert shown(deaths_in(now)) == [("q.retry", "expired", 3, "retry.q"), ("q", "rejected", 3, "events")]
    assert value_of(deaths_in(now)[b"x-first-death-queue"]) == "q"
    assert deaths_in(fields_of(redrive_deaths=before)) == before, "and a copy of a copy says the same"


def test_the_waits_of_our_own_copies_are_no_story() -> None:
    waits = fields_of(x_death=[death("q.retry.5000", "expired", 3)], x_first_death_queue="q.retry.5000")
    assert kept_deaths(waits, "q") == {}
    assert shown(kept_deaths(waits, "other")) == [("q.retry.5000", "expired", 3, "")]


@pytest.mark.parametrize("odd", [7, "text", [], ["text"], [{"queue": 3}], {"x-death": 1}, None], ids=str)
def test_odd_deaths_are_carried_and_raise_nothing(odd: Any) -> None:
    fields = fields_of(x_death=odd, redrive_deaths=odd)
    kept_deaths(fields, "q")
    assert fields_of(x_death=odd) == deaths_in(fields_of(x_death=odd))
