"""A secret under a secret key is never shown; where there is no secret, nothing changes."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import KEYS

REDACTOR = Redactor()
MARK = "Xq7Zk"  # in no other part of what is generated

secrets = st.text(max_size=30).map(lambda text: f"{MARK}{text}{MARK}")
prefixes = st.sampled_from(["", "db_", "my-", "X-", "user."])
secret_keys = st.builds("{}{}".format, prefixes, st.sampled_from(KEYS)).flatmap(
    lambda key: st.sampled_from([key, key.upper(), key.replace("_", "-"), key.title()])
)
letters = st.text("abcdef ", max_size=10)
holders = st.recursive(
    secrets | st.lists(secrets, min_size=1, max_size=3) | st.dictionaries(letters, secrets, min_size=1),
    lambda inner: st.lists(inner, min_size=1, max_size=2) | st.dictionaries(letters, inner, min_size=1, max_size=2),
    max_leaves=4,
)


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """JSON of any depth with a secret somewhere under a secret key."""
    document: Any = {draw(secret_keys): draw(holders)}
    for _ in range(draw(st.integers(0, 4))):
        document = draw(st.sampled_from([[document, 1], {"a": document, "b": None}, [document]]))
    return document


@given(documents())
def test_a_secret_in_json_is_not_shown(document: Any) -> None:
    shown = REDACTOR.body(msgspec.json.encode(document))
    assert MARK not in shown
    msgspec.json.decode(shown)


@given(secret_keys, st.binary(max_size=30))
def test_a_secret_in_a_header_is_not_shown(key: str, secret: bytes) -> None:
    assert MARK not in str(REDACTOR.headers(((key, MARK.encode() + secret),)))


WRITTEN = ("{}={}", '"{}":"{}"', "'{}': '{}'", "{} = '{}'")


@given(letters, st.sampled_from(WRITTEN), secret_keys, st.text("abcXYZ019-_./+", max_size=20))
def test_a_secret_assigned_in_a_text_is_not_shown(before: str, written: str, key: str, secret: str) -> None:
    assert MARK not in REDACTOR.text(f"{before} {written.format(key, MARK + secret)}")


@given(st.recursive(st.none() | st.booleans() | st.integers(-(10**12), 10**12) | letters, st.lists))
def test_json_without_secrets_is_unchanged(document: Any) -> None:
    body = msgspec.json.encode(document)
    assert REDACTOR.body(body, limit=1 << 20) == body.decode()


@given(st.text("abcdefgh ,.;!?()\n", max_size=200))
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert REDACTOR.text(text) == text


@given(st.binary(max_size=300), st.integers(1, 400))
def test_any_bytes_can_be_shown(body: bytes, limit: int) -> None:
    REDACTOR.body(body, limit=limit).encode()


@given(st.text(max_size=200) | st.text(st.sampled_from("password token=:\"'[]{} \\\nab41-"), max_size=200))
def test_redacting_never_raises(text: str) -> None:
    REDACTOR.text(text)
