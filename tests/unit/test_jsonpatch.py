"""JSON Patch as RFC 6902 has it; the cases of its appendix, and what a stranger would try."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redrive.forensics.jsonpatch import Operation, PatchRefused, patched
from redrive.untrusted import DEEPEST

_READ = msgspec.json.Decoder(tuple[Operation, ...]).decode
FINE: dict[str, tuple[Any, str, Any]] = {
    "A.1 add a member": ({"foo": "bar"}, '[{"op":"add","path":"/baz","value":"qux"}]', {"baz": "qux", "foo": "bar"}),
    "A.2 add an element": (
        {"foo": ["bar", "baz"]},
        '[{"op":"add","path":"/foo/1","value":"qux"}]',
        {"foo": ["bar", "qux", "baz"]},
    ),
    "A.3 remove a member": ({"baz": "qux", "foo": "bar"}, '[{"op":"remove","path":"/baz"}]', {"foo": "bar"}),
    "A.4 remove an element": ({"foo": ["a", "b", "c"]}, '[{"op":"remove","path":"/foo/1"}]', {"foo": ["a", "c"]}),
    "A.5 replace": ({"baz": "q", "foo": 1}, '[{"op":"replace","path":"/baz","value":"boo"}]', {"baz": "boo", "foo": 1}),
    "A.6 move a value": (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        '[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]',
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    "A.7 move an element": (
        {"foo": ["all", "grass", "cows", "eat"]},
        '[{"op":"move","from":"/foo/1","path":"/foo/3"}]',
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    "A.8 test": (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        '[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]',
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    "A.10 a nested member": (
        {"foo": "bar"},
        '[{"op":"add","path":"/child","value":{"grandchild":{}}}]',
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    "A.11 an unknown field is ignored": (
        {"foo": "bar"},
        '[{"op":"add","path":"/baz","value":"qux","xyz":123}]',
        {"foo": "bar", "baz": "qux"},
    ),
    "A.14 an escaped name": (
        {"/": 9, "~1": 10},
        '[{"op":"test","path":"/~01","value":10}]',
        {"/": 9, "~1": 10},
    ),
    "A.16 an array into an array": (
        {"foo": ["bar"]},
        '[{"op":"add","path":"/foo/-","value":["abc","def"]}]',
        {"foo": ["bar", ["abc", "def"]]},
    ),
    "the whole document": ({"a": 1}, '[{"op":"replace","path":"","value":[1]}]', [1]),
    "a null is a value": ({"a": 1}, '[{"op":"add","path":"/b","value":null}]', {"a": 1, "b": None}),
    "a copy is its own": (
        {"a": {"b": 1}},
        '[{"op":"copy","from":"/a","path":"/c"},{"op":"replace","path":"/c/b","value":2}]',
        {"a": {"b": 1}, "c": {"b": 2}},
    ),
    "an empty name": ({"": 1}, '[{"op":"replace","path":"/","value":2}]', {"": 2}),
    "a move to itself": ({"a": 1}, '[{"op":"move","from":"/a","path":"/a"}]', {"a": 1}),
    "replace keeps its place": ([1, 2, 3], '[{"op":"replace","path":"/1","value":9}]', [1, 9, 3]),
}
WRONG = {
    "A.9 a test that fails": (
        {"baz": "qux"},
        '[{"op":"test","path":"/baz","value":"bar"}]',
        "the value there is another",
    ),
    "A.12 no parent": ({"foo": "bar"}, '[{"op":"add","path":"/baz/bat","value":"qux"}]', "there is no 'baz'"),
    "A.15 text is no number": ({"a": 10}, '[{"op":"test","path":"/a","value":"10"}]', "the value there is another"),
    "true is not 1": ({"a": 1}, '[{"op":"test","path":"/a","value":true}]', "the value there is another"),
    "nor within": ({"a": [1]}, '[{"op":"test","path":"/a","value":[true]}]', "the value there is another"),
    "unknown operation": ({}, '[{"op":"spam","path":"/a"}]', "no such operation"),
    "no value": ({}, '[{"op":"add","path":"/a"}]', "it has no value"),
    "no from": ({}, '[{"op":"move","path":"/a"}]', "it has no from"),
    "leading zero": ([1, 2], '[{"op":"remove","path":"/01"}]', "no place in an array"),
    "beyond the end": ([1], '[{"op":"add","path":"/2","value":1}]', "has 1 items"),
    "a minus to remove": ([1], '[{"op":"remove","path":"/-"}]', "no place in an array"),
    "into itself": ({"a": {}}, '[{"op":"move","from":"/a","path":"/a/b"}]', "into itself"),
    "no pointer": ({}, '[{"op":"add","path":"a","value":1}]', "it begins with /"),
    "a bare tilde": ({}, '[{"op":"add","path":"/a~2","value":1}]', "~ is written ~0"),
    "into a text": ({"a": "b"}, '[{"op":"add","path":"/a/c","value":1}]', "neither an object nor an array"),
    "replace nothing": ({}, '[{"op":"replace","path":"/a","value":1}]', "there is no 'a'"),
    "remove everything": ({}, '[{"op":"remove","path":""}]', "cannot be removed"),
}


@pytest.mark.parametrize("name", FINE)
def test_a_patch_does_what_the_rfc_says(name: str) -> None:
    document, patch, expected = FINE[name]
    before = msgspec.json.encode(document)
    assert patched(document, _READ(patch)) == expected
    assert msgspec.json.encode(document) == before, "what was given is not changed"


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_with_its_number_and_reason(name: str) -> None:
    document, patch, reason = WRONG[name]
    with pytest.raises(PatchRefused, match="operation 1") as caught:
        patched(document, _READ(patch))
    assert reason in str(caught.value)


SECRET = {"password": "hunter2", "list": ["public", "hunter2"], "deep": {"password": "hunter2"}, "note": ""}
SHOWN = {"password": "[redacted]", "list": ["public", "[redacted]"], "deep": "[redacted]", "note": ""}


@pytest.mark.parametrize(
    "patch",
    [
        '[{"op":"test","path":"/password","value":"hunter2"}]',
        '[{"op":"test","path":"","value":{}}]',
        '[{"op":"copy","from":"/password","path":"/note"}]',
        '[{"op":"move","from":"/password","path":"/note"}]',
        '[{"op":"copy","from":"","path":"/note"}]',
        '[{"op":"remove","path":"/list/0"},{"op":"test","path":"/list/0","value":"hunter2"}]',
        '[{"op":"remove","path":"/list/0"},{"op":"copy","from":"/list/0","path":"/note"}]',
        '[{"op":"test","path":"/deep/password","value":"hunter2"}]',
        '[{"op":"replace","path":"/deep/password","value":"x"}]',
    ],
)
def test_a_patch_reads_nothing_that_is_masked(patch: str) -> None:
    with pytest.raises(PatchRefused):
        patched(SECRET, _READ(patch), SHOWN)


def test_what_is_masked_can_be_replaced() -> None:
    patch = '[{"op":"replace","path":"/password","value":"new"},{"op":"test","path":"/password","value":"new"}]'
    assert patched(SECRET, _READ(patch), SHOWN)["password"] == "new"
    assert patched(SECRET, _READ('[{"op":"remove","path":"/deep"}]'), SHOWN).keys() == {"password", "list", "note"}


def test_a_patch_makes_nothing_that_is_too_deep_to_be_read() -> None:
    deep: Any = 1
    for _ in range(DEEPEST):
        deep = [deep]
    assert patched({}, _READ(b'[{"op":"add","path":"/a","value":1}]')) == {"a": 1}
    assert patched(1, [Operation("replace", "", deep)]) == deep
    for place in ("/a", "/b"):
        with pytest.raises(PatchRefused, match="256 levels"):
            patched({"a": 1}, [Operation("add", place, deep)])
    with pytest.raises(PatchRefused, match="256 levels"):
        patched({"a": deep[0][0], "b": [[]]}, [Operation("move", "/b/0/0", origin="/a")])


def test_copies_of_copies_end_before_they_fill_the_memory() -> None:
    twice = Operation("copy", "/-", origin="")
    assert len(patched(["x" * 1000], [twice] * 5)) == 6
    with pytest.raises(PatchRefused, match=r"operation \d+ \(copy /-\): the patch copies more than 16 MB"):
        patched(["x" * 1000], [twice] * 40)
