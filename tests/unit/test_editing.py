"""What an editor shows is what it gives back, and nothing is changed that nobody changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import UsageError
from redrive.forensics.editing import UNSEEN, NotEditable, difference, from_edit, is_text, patch_body, to_edit
from redrive.forensics.jsonpatch import Operation
from redrive.forensics.redact import Redactor
from redrive.model import Version
from redrive.testing.builders import make_letter, make_message

HEADERS = (("trace", b"abc"), ("raw", b"\xff\x00"), ("trace", b"def"))
BODY = b'{"total":1.10,"big":12345678901234567890123,"name":"Gr\xc3\xb6\xc3\x9fe","e":1E400}'


def test_what_was_only_looked_at_is_unchanged_to_the_byte() -> None:
    text = to_edit(HEADERS, BODY)
    assert "trace: abc" in text
    assert '  "total": 1.10,' in text
    assert from_edit(text, HEADERS, BODY) == (HEADERS, BODY)
    assert from_edit(text + "\n", HEADERS, BODY) == (HEADERS, BODY), "editors end a file with a new line"


@given(
    st.binary(max_size=200).filter(is_text), st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9)), max_size=4)
)
def test_any_text_comes_back_as_it_was(body: bytes, headers: list[tuple[str, bytes]]) -> None:
    pairs = tuple(headers)
    assert from_edit(to_edit(pairs, body), pairs, body) == (pairs, body)


def test_one_number_changes_one_number() -> None:
    text = to_edit(HEADERS, BODY).replace("1.10", "1.20")
    assert from_edit(text, HEADERS, BODY) == (HEADERS, BODY.replace(b"1.10", b"1.20"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": 1, "b": [1, 2]}', b'{"a": 9, "b": [1, 2]}'),
        (b'{"a":1,"b":[1,2]}', b'{"a":9,"b":[1,2]}'),
        (b'{\n    "a": 1\n}\n', b'{\n  "a": 9\n}\n'),
    ],
)
def test_json_is_written_as_it_was(body: bytes, expected: bytes) -> None:
    text = to_edit((), body).replace('"a": 1', '"a": 9')
    assert from_edit(text + "\n", (), body)[1] == expected


def test_headers_are_set_added_and_removed_and_what_is_no_text_stays() -> None:
    text = to_edit(HEADERS, b"x").replace("trace: def\n", "new: 1\n")
    assert from_edit(text, HEADERS, b"x") == ((("trace", b"abc"), ("new", b"1"), ("raw", b"\xff\x00")), b"x")


def test_what_is_no_json_any_more_is_refused_and_so_is_a_lost_line() -> None:
    with pytest.raises(NotEditable, match="was JSON and is none any more"):
        from_edit(to_edit((), b'{"a":1}').replace("1", "one"), (), b'{"a":1}')
    with pytest.raises(NotEditable, match=r"line .* is gone"):
        from_edit("{}", (), b"{}")
    with pytest.raises(NotEditable, match="is no header"):
        from_edit(to_edit((), b"x").replace("\n---", "\nnonsense\n---"), (), b"x")


def test_a_patch_keeps_the_spacing_and_refuses_what_is_no_json() -> None:
    patch = [Operation("replace", "/a", 2)]
    assert patch_body('{"a": 1, "ß": "ö"}'.encode(), patch) == '{"a": 2, "ß": "ö"}'.encode()
    assert patch_body(b'{"a":1}', patch) == b'{"a":2}'
    with pytest.raises(UsageError, match="the body is no JSON"):
        patch_body(b"\xff", patch)


@pytest.mark.parametrize("levels", [257, 480, 900, 100_000])
def test_a_patch_of_a_body_that_is_too_deep_is_refused(levels: int) -> None:
    body = b'{"password":"hunter2","a":' + b"[" * levels + b"]" * levels + b"}"
    with pytest.raises(UsageError, match="256 levels"):
        patch_body(body, [Operation("add", "/b", 1)], Redactor())


def test_a_patch_cannot_read_what_the_redactor_masks() -> None:
    body = b'{"password":"hunter2","note":""}'
    with pytest.raises(UsageError, match="masked for you"):
        patch_body(body, [Operation("copy", "/note", origin="/password")], Redactor())
    assert patch_body(body, [Operation("replace", "/password", "x")], Redactor()) == b'{"password":"x","note":""}'


@pytest.mark.parametrize(
    ("body", "patch"),
    [
        ('[{"name":"password","value":"hunter2xy"}]', Operation("replace", "/0/name", "colour")),
        ('[{"name":"password","value":"hunter2xy"}]', Operation("remove", "/0/name")),
        ('{"a":[{"key":"api_key","val":"hunter2xy"},1]}', Operation("add", "/a/0/key", "x")),
        ('{"args":["--password","hunter2xy"]}', Operation("replace", "/args/0", "--colour")),
        ('{"args":["--password","hunter2xy"]}', Operation("remove", "/args/0")),
        ('{"args":["--password","hunter2xy"]}', Operation("add", "/args/1", "x")),
        ('[["Cookie","hunter2xy"]]', Operation("replace", "/0/0", "x")),
    ],
)
def test_a_patch_beside_a_secret_does_not_show_it(body: str, patch: Operation) -> None:
    redactor = Redactor()
    assert "hunter2" not in redactor.body(body.encode())
    with pytest.raises(UsageError, match="would be shown after that"):
        patch_body(body.encode(), [patch], redactor)
    assert b"hunter2" in patch_body(body.encode(), [patch]), "who sees it may do so"


def test_a_patch_beside_a_secret_that_stays_masked_is_made() -> None:
    body = b'[{"name":"password","value":"hunter2xy"},{"n":1,"password":"hunter2xy"}]'
    more = [Operation("add", "/1/token", "new"), Operation("replace", "/0/name", "secret"), Operation("remove", "/1/n")]
    made = patch_body(body, more, Redactor())
    assert made == b'[{"name":"secret","value":"hunter2xy"},{"password":"hunter2xy","token":"new"}]'
    new = [Operation("replace", "/0/name", "colour"), Operation("replace", "/0/value", "red")]
    assert patch_body(body, new, Redactor()).startswith(b'[{"name":"colour","value":"red"}')


def test_a_difference_is_masked_and_says_so_where_nothing_else_differs() -> None:
    def version(number: int, body: bytes) -> Version:
        return Version("id", number, (("authorization", b"Bearer " + body[-9:]),), len(body), None, body)

    old, new = version(0, b'{"password":"hunter2","n":1}'), version(1, b'{"password":"hunter3","n":2}')
    lines = difference(old, new, Redactor())
    assert "hunter" not in "\n".join(lines)
    assert '+  "n": 2' in lines
    assert difference(old, version(1, b'{"password":"other22","n":1}'), Redactor()) == [UNSEEN]
    assert any("hunter3" in line for line in difference(old, new))
    huge = make_letter(make_message(body=b"x" * (3 << 20)))
    assert "too long" in difference(version(0, b""), Version(huge.id, 1, (), 3 << 20, None, huge.message.body))[0]
