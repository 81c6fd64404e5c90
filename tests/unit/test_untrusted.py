"""What strangers wrote is read to one depth everywhere, and never overflows anything."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from redrive.untrusted import DEEPEST, UNREADABLE, TooDeep, checked_tree, is_too_deep, read_json


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_the_same_body_is_readable_or_not_wherever_it_is_read() -> None:
    def deeper(frames: int, body: bytes) -> Any:
        return read_json(body) if not frames else deeper(frames - 1, body)

    assert deeper(300, nested(DEEPEST)) == read_json(nested(DEEPEST))
    for body in (nested(DEEPEST + 1), nested(997), nested(100_000), b'{"a":' * 5000):
        for frames in (0, 300):
            with pytest.raises(TooDeep):
                deeper(frames, body)


def test_brackets_in_texts_and_side_by_side_are_not_depth() -> None:
    assert not is_too_deep(b'["' + b"[" * 5000 + b'\\"[[["]')
    assert not is_too_deep(b"[" + b"[{}]," * 5000 + b"1]")


@pytest.mark.parametrize("body", [b"", b"\xff", b"\xef\xbb\xbf{}", b"[1,", b'"\\ud800"', b"NaN", b'"' + b"[" * 999])
def test_what_is_no_json_raises_what_is_expected(body: bytes) -> None:
    with pytest.raises(UNREADABLE):
        read_json(body)


def test_yaml_that_contains_itself_or_stands_for_billions_is_refused() -> None:
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    for text in ("a: &a {b: *a}", "&a [*a]", laughs):
        with pytest.raises(ValueError, match=r"values|contains itself"):
            checked_tree(yaml.safe_load(text))
    tree = {"a": [1, {"b": (2, None)}]}
    assert checked_tree(tree) is tree
