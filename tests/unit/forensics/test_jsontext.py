"""JSON token by token: what json.loads takes is taken, and nothing of it is changed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.forensics.jsontext import NotJson, indented, tokens

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
pieces = st.lists(st.sampled_from(["[", "]", "{", "}", ",", ":", '"a"', "1", "-0.5e3", "null", " ", "\n", "x", '"']))


def _strict(text: str) -> bool:
    def never(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=never)
    except ValueError:
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        return bool(list(tokens(text)))
    except NotJson:
        return False


@given(values, st.sampled_from([None, 3]), st.booleans())
def test_every_document_is_its_tokens(value: object, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    assert "".join(token.space + token.text for token in tokens(text)) == text
    assert json.loads(indented(text)) == value


@given(pieces.map("".join))
def test_what_json_takes_is_taken_and_nothing_else(text: str) -> None:
    assert _is_json(text) == _strict(text)


def test_depth_costs_nothing_and_is_not_indented() -> None:
    text = "[" * 100_000 + "]" * 100_000
    assert sum(1 for _ in tokens(text)) == 200_000
    assert indented(text) == text


@pytest.mark.parametrize("text", ['{"a": 1.0, "a": 1e999}', "", "{", '["\\ud800"]', "plain"])
def test_an_indented_document_has_the_same_tokens(text: str) -> None:
    assert "".join(indented(text).split()) == "".join(text.split())
