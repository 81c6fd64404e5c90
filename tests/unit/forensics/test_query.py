"""Which letters a query selects: the reference that every store answers by."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive.forensics.query import Query, matches
from redrive.model import Category, State
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START

SECOND = timedelta(seconds=1)
LETTER = make_letter(
    make_message(
        id="Order-7",
        source="orders",
        body=b'{"Name":"\xc3\x84rger"}',
        key=b"cust-\xff9",
        tenant="acme",
        correlation_id="Corr",
    ),
    make_failure(type="shop.CardError", message="Card declined", code="402", category=Category.PERMANENT),
    next_retry_at=START,
    owner="me",
    lease_until=START,
    expires_at=START,
)


@pytest.mark.parametrize(
    ("selects", "leaves"),
    [
        ({"ids": (LETTER.id, "x")}, {"ids": ("x",)}),
        ({"message_ids": ("Order-7",)}, {"message_ids": ("order-7",)}),
        ({"states": (State.PENDING, State.RESOLVED)}, {"states": (State.RESOLVED,)}),
        ({"sources": ("orders",)}, {"sources": ("order",)}),
        ({"categories": (Category.PERMANENT,)}, {"categories": (Category.NETWORK,)}),
        ({"groups": (LETTER.group,)}, {"groups": ("x",)}),
        ({"tenants": ("acme",)}, {"tenants": ("ACME",)}),
        ({"transports": ("default",)}, {"transports": ("kafka",)}),
        ({"error_type": "shop.CardError"}, {"error_type": "ardError"}),
        ({"error_type": "CardError"}, {"error_type": "p.CardError"}),
        ({"code": "402"}, {"code": "40"}),
        ({"since": START}, {"since": START + SECOND}),
        ({"before": START + SECOND}, {"before": START}),
        ({"due": START}, {"due": START - SECOND}),
        ({"lapsed": START + SECOND}, {"lapsed": START}),
        ({"expired": START + SECOND}, {"expired": START}),
        ({"owner": "me"}, {"owner": "you"}),
        ({"ids": None}, {"ids": ()}),
    ],
    ids=lambda fields: "-".join(fields),
)
def test_each_field_narrows(selects: dict[str, Any], leaves: dict[str, Any]) -> None:
    assert matches(Query(**selects), LETTER)
    assert not matches(Query(**leaves), LETTER)


@pytest.mark.parametrize(
    "text", ["order-7", "ORDER", "cust-", "corr", "carderror", "declined", '"name"', "Ärger", "", "Card declined"]
)
def test_a_text_is_found_wherever_a_person_would_look_for_it(text: str) -> None:
    assert matches(Query(text=text), LETTER)


@pytest.mark.parametrize("text", ["ärger", "acme", "nowhere", "\ud800", "Card  declined"])
def test_a_text_that_is_nowhere_is_not_found(text: str) -> None:
    assert not matches(Query(text=text), LETTER)


def test_an_empty_query_selects_every_letter() -> None:
    assert Query().is_empty
    assert matches(Query(), LETTER)
    assert not Query(ids=()).is_empty
    assert not Query(text="").is_empty


def test_fields_narrow_together() -> None:
    assert matches(Query(sources=("orders",), tenants=("acme",)), LETTER)
    assert not matches(Query(sources=("orders",), tenants=("globex",)), LETTER)


def test_what_is_not_set_is_neither_due_nor_lapsed_nor_expired() -> None:
    bare = make_letter()
    for query in (Query(due=START), Query(lapsed=START), Query(expired=START), Query(owner="me"), Query(code="402")):
        assert not matches(query, bare)


def test_a_misspelt_field_is_refused_and_not_ignored() -> None:
    with pytest.raises(msgspec.ValidationError, match="stats"):
        msgspec.json.decode(b'{"stats":["pending"]}', type=Query)
    with pytest.raises(TypeError):
        Query(stats=("pending",))  # type: ignore[call-arg]
