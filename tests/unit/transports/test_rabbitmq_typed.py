"""The header of a letter that holds what headers have no type for: as we write it, as we wrote it, and forged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redrive.testing.builders import make_message
from redrive.transports.rabbitmq.fields import Field, field_of, fields_in, value_of
from redrive.transports.rabbitmq.typed import TYPED, as_it_came, packed
from redrive.transports.rabbitmq.wire import properties_of


def sent(*headers: tuple[str, bytes], typed: bytes) -> dict[str, Any]:
    """The headers of a message as they go over the wire, each with its type."""
    properties = properties_of(make_message(headers=(*headers, (TYPED, typed))))
    return {name: field_of(value) for name, value in properties.headers.items() if name != "redrive"}


def test_a_header_has_its_type_again_unless_somebody_has_edited_it() -> None:
    typed = packed({}, {b"n": field_of(0.87), b"m": Field(b"b\7")}, {})
    assert sent(("n", b"0.87"), ("m", b"8"), typed=typed) == {b"n": field_of(0.87), "m": field_of("8")}


def test_a_letter_of_an_older_version_goes_back_as_well_as_it_can() -> None:
    older = msgspec.msgpack.encode([{"type": "file", "secret": 1}, {"n": 7, "deep": {"a": [1]}, "huge": 2**64 - 1}])
    assert as_it_came(((TYPED, older),)).kept == {"type": "file"}
    found = sent(("n", b"7"), ("deep", b'{"a":[1]}'), ("huge", b"1"), typed=older)
    assert found == {b"n": field_of(7), b"deep": field_of({"a": [1]}), "huge": field_of("1")}


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        *map(
            msgspec.msgpack.encode,
            (7, [], [1, 2], [{}, {}, 10**12, 10**12], [{}, {}, b"F", b""], [{}, {}, "F", "x", 3]),
        ),
    ],
    ids=lambda forged: str(forged[:12]),
)
def test_what_is_forged_says_nothing(forged: bytes) -> None:
    assert sent(("n", b"7"), typed=forged) == {"n": field_of("7")}


def test_a_header_of_a_stranger_with_our_name_is_kept_and_not_believed() -> None:
    headers = ((TYPED, b"theirs"), (TYPED, packed({}, {TYPED.encode(): field_of(b"theirs")}, {})))
    table = properties_of(make_message(headers=headers)).headers
    assert value_of(table[TYPED.encode()]) == b"theirs"
    assert fields_in(b"") == {}
