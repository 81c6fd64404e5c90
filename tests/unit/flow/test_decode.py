"""From bytes to what a handler's annotation says, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from redrive import Message
from redrive.errors import ConfigError, UsageError
from redrive.flow.decode import decoder_for, encode, signature_of


@dataclass
class Plain:
    id: int
    note: str = ""


class Compact(msgspec.Struct):
    id: int


class Model(pydantic.BaseModel):
    id: int


class Typed(TypedDict):
    id: int


class Unreadable:
    """A class that no JSON becomes."""


BODY = b'{"id":7}'


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict, {"id": 7}),
        (dict[str, int], {"id": 7}),
        (Any, {"id": 7}),
        (bytes, BODY),
        (str, BODY.decode()),
        (Plain, Plain(7)),
        (Compact, Compact(7)),
        (Model, Model(id=7)),
        (Typed, {"id": 7}),
        (Compact | None, Compact(7)),
    ],
)
def test_a_body_becomes_what_the_annotation_says(annotation: Any, value: Any) -> None:
    assert decoder_for(annotation)(BODY) == value


def test_a_list_becomes_a_list() -> None:
    assert decoder_for(list[Compact])(b'[{"id":1},{"id":2}]') == [Compact(1), Compact(2)]
    assert decoder_for(list)(b"[1]") == [1]


@pytest.mark.parametrize("annotation", [dict, Any, Plain, Compact, Model, Typed, list, int])
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"id":"x"', b"\x00"])
def test_a_body_that_is_something_else_is_an_error_and_no_crash(annotation: Any, body: bytes) -> None:
    with pytest.raises(Exception, match=r".+"):
        decoder_for(annotation)(body)


def test_bytes_take_everything_and_text_takes_utf8() -> None:
    assert decoder_for(bytes)(b"\xff\x00") == b"\xff\x00"
    with pytest.raises(UnicodeDecodeError):
        decoder_for(str)(b"\xff")


@pytest.mark.parametrize("annotation", [Unreadable, list[Unreadable], dict[str, Unreadable], list[Model], Callable, 5])
def test_a_type_that_no_body_can_become_is_refused_when_the_handler_is_registered(annotation: Any) -> None:
    with pytest.raises(ConfigError, match="a body cannot be decoded to"):
        decoder_for(annotation)


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (b"\xff", b"\xff"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"a"), b"a"),
        ("ü", "ü".encode()),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (Plain(7, "x"), b'{"id":7,"note":"x"}'),
        (Compact(7), BODY),
        (Model(id=7), BODY),
        (None, b"null"),
    ],
)
def test_a_value_becomes_bytes(value: Any, body: bytes) -> None:
    assert encode(value) == body


@pytest.mark.parametrize(
    "value", [object(), {(1, 2): 3}, "\ud800", {"a": "\ud800"}, Model.model_construct(id=object())]
)
def test_what_cannot_be_sent_is_refused_by_its_type(value: Any) -> None:
    with pytest.raises(UsageError, match=rf"a {type(value).__name__} cannot be sent"):
        encode(value)


def test_what_refers_to_itself_cannot_be_sent() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UsageError, match="a list cannot be sent"):
        encode(loop)


def test_a_second_parameter_gets_the_message() -> None:
    def body_only(order: dict[str, Any]) -> None: ...
    def with_message(order: dict[str, Any], message: Message) -> None: ...
    def unannotated(order, message): ...  # type: ignore[no-untyped-def]
    def with_default(order: dict[str, Any], retries: int = 3) -> None: ...

    assert [signature_of(one).wants_message for one in (body_only, with_message, unannotated, with_default)] == [
        False,
        True,
        True,
        False,
    ]


def test_a_method_takes_the_body_after_itself() -> None:
    class Shop:
        def charge(self, order: Compact) -> None: ...

    assert signature_of(Shop().charge).decode(BODY) == Compact(7)


def test_signatures_that_cannot_be_called_are_refused() -> None:
    def none() -> None: ...
    def three(a: Any, b: Any, c: Any) -> None: ...
    def keyword(a: Any, *, b: Any) -> None: ...
    def message_first(message: Message) -> None: ...
    def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    for function, says in (
        (none, "takes 0 parameters"),
        (three, "takes 3 parameters"),
        (keyword, "'b'"),
        (message_first, "the Message is the second"),
        (unknown, "annotations of .*unknown cannot be read"),
    ):
        with pytest.raises(ConfigError, match=says):
            signature_of(function)


def test_a_generator_is_no_handler_because_nobody_would_run_it() -> None:
    def lazy(order: Any) -> Any:
        yield

    async def lazy_async(order: Any) -> Any:
        yield

    for function in (lazy, lazy_async):
        with pytest.raises(ConfigError, match="yields"):
            signature_of(function)
