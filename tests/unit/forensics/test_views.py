"""What is shown of a letter: everything a person needs, and no secret."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from redrive.forensics.redact import Redactor
from redrive.forensics.views import detail, summary
from redrive.model import State
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START

SECRET = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"  # the shape of a key, of no account


def test_a_summary_is_one_line_of_it() -> None:
    letter = make_letter(make_message(tenant="acme"), make_failure(attempt=1), make_failure(attempt=2, code="503"))
    shown = summary(letter, Redactor())
    assert (shown.id, shown.state, shown.source, shown.tenant) == (letter.id, State.PENDING, "orders", "acme")
    assert (shown.error_type, shown.code, shown.attempts) == ("builtins.RuntimeError", "503", 2)
    assert shown.message_id == letter.message.id


def test_a_detail_has_every_attempt_with_its_stack() -> None:
    letter = make_letter(
        make_message(), make_failure(attempt=1, stack="first"), make_failure(attempt=2, stack="second")
    )
    shown = detail(letter, Redactor())
    assert [(one.attempt, one.stack) for one in shown.failures] == [(1, "first"), (2, "second")]
    assert (shown.body, shown.body_size) == ("{}", 2)


@pytest.mark.parametrize(
    ("body", "is_exact"),
    [
        ('{"name": "Zoë\r\n"}'.encode(), True),
        (b"", True),
        (b'{"password": "hunter2"}', False),
        (b"a" * 100_000, False),
        (b"\xff\xfe", False),
        (b"bell \x07", False),
    ],
)
def test_it_says_whether_the_body_is_shown_as_it_is(body: bytes, is_exact: bool) -> None:
    assert detail(make_letter(make_message(body=body)), Redactor()).body_exact is is_exact


def test_bytes_that_are_no_text_are_shown_all_the_same() -> None:
    letter = make_letter(make_message(body=b"\x00\xff" * 10, key=b"\xff", headers=(("h", b"\xfe"),)))
    shown = detail(letter, Redactor())
    assert (shown.key, shown.headers) == ("\\xff", [("h", "\\xfe")])
    assert "binary, 20 bytes" in shown.body


def test_no_secret_is_shown_wherever_it_stands() -> None:
    message = make_message(
        body=msgspec.json.encode({"card": SECRET, "password": "hunter2"}),
        headers=(("authorization", f"Bearer {SECRET}".encode()), ("note", SECRET.encode())),
        key=SECRET.encode(),
        correlation_id=f"trace {SECRET}",
    )
    failure = make_failure(message=f"declined {SECRET}", stack=f"line 1\napi_key='{SECRET}'")
    letter = make_letter(message, failure)
    for shown in (summary(letter, Redactor()), detail(letter, Redactor())):
        written = msgspec.json.encode(shown).decode()
        assert SECRET not in written
        assert "hunter2" not in written
    assert letter.message == message


def test_a_message_cannot_drive_the_terminal_that_shows_its_key() -> None:
    shown = detail(make_letter(make_message(key=b"\x1b[2Jgone")), Redactor())
    assert shown.key is not None
    assert "\x1b" not in shown.key


def test_a_letters_life_is_shown() -> None:
    letter = replace(
        make_letter(),
        retries=1,
        max_retries=3,
        resends=2,
        replay="r1",
        depends_on=("a",),
        owner="me",
        lease_until=START,
        expires_at=START,
        next_retry_at=START,
    )
    shown = detail(letter, Redactor())
    assert (shown.retries, shown.max_retries, shown.resends, shown.replay) == (1, 3, 2, "r1")
    assert (shown.depends_on, shown.owner, shown.lease_until) == (("a",), "me", START)
    assert (shown.expires_at, shown.next_retry_at) == (START, START)


def test_what_cannot_be_searched_for_secrets_is_hidden_as_a_whole_and_the_rest_is_shown() -> None:
    class Breaking(Redactor):
        def body(self, body: bytes, limit: int = 1) -> str:
            raise MemoryError

        def header(self, name: str, value: bytes) -> str:
            return super().header(name, value) if name == "fine" else str(1 / 0)

    letter = make_letter(make_message(body=b"hunter2", headers=(("fine", b"1"), ("bad", b"hunter2"))))
    shown = detail(letter, Breaking())
    assert "hunter2" not in str(shown)
    assert shown.body.startswith("[redacted]: it cannot be searched for secrets (MemoryError)")
    assert "--raw" in shown.body
    assert shown.headers[0] == ("fine", "1")
    assert "ZeroDivisionError" in shown.headers[1][1]
    assert shown.body_size == len(b"hunter2")
