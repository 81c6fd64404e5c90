"""What is a secret, where it hides, and what stays readable."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from redrive.config.settings import Redaction
from redrive.errors import ConfigError
from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import MASK, is_card

REDACTOR = Redactor()
# put together here, so that no scanner takes this file for a leak
JWT = ".".join(("eyJ" + "hbGciOiJIUzI1NiJ9", "eyJzdWIiOiIxIn0", "s-i_g"))
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp" + "_" + "a1B2" * 9
SLACK = "xoxb" + "-1234567890-abcdef"
STRIPE = "sk" + "_live_" + "abcdef1234567890"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIB\nAAAA\n-----END RSA " + "PRIVATE KEY-----"
CARD = "4111111111111111"
BASIC = b64encode(b"ann:hunter2").decode()


SECRET = (
    *("Authorization", "cookie", "Set-Cookie", "session", "session_id", "secret", "client_secret", "private-key"),
    *("password", "PASSWORD", "passwd", "db_password", "dbPassword", "userpassword", "pin", "user_pin"),
    *("token", "access_token", "accessToken", "api_key", "apikey", "apiKey", "APIKey", "X-Api-Key"),
    *("aws_secret_access_key", "card_number", "cardNumber", "cvv", "ssn"),
)
HARMLESS = (
    *("token_count", "max_tokens", "password_length", "session_count"),
    *("spin", "shipping", "keyboard", "author", "secretary", "id"),
)


@pytest.mark.parametrize("key", SECRET)
def test_secret_keys(key: str) -> None:
    assert REDACTOR.is_secret(key)


@pytest.mark.parametrize("key", HARMLESS)
def test_keys_that_only_look_like_it(key: str) -> None:
    assert not REDACTOR.is_secret(key)


@pytest.mark.parametrize("secret", [JWT, AWS, GITHUB, SLACK, STRIPE, PEM, CARD, "4111 1111 1111 1111"])
def test_a_secret_is_known_by_its_looks(secret: str) -> None:
    assert REDACTOR.text(f"before {secret} after") == f"before {MASK} after"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bearer abc123def", f"Bearer {MASK}"),
        (f"sent Basic {BASIC} on", f"sent Basic {MASK} on"),
        ("redis://ann:hunter2@host:1/0", f"redis://ann:{MASK}@host:1/0"),
        ("redis://:p@ss@host", f"redis://:{MASK}@host"),
        ("user=ann&password=hunter2&x=1", f"user=ann&password={MASK}&x=1"),
        ("login(token=abc, retries=3)", f"login(token={MASK}, retries=3)"),
        ('{"db_password": "a\\"b", "x": "y"', f'{{"db_password": "{MASK}", "x": "y"'),
        ("{'password': 'hunter2'}", f"{{'password': '{MASK}'}}"),
        ("credentials=['a', 'b'] end", f"credentials={MASK} end"),
        ('cmd="login --password=hunter2"', f'cmd="login --password={MASK}"'),
        ("note=token=abc", f"note=token={MASK}"),
        ("a: 1\n  password: hunter 2\nb: 2", f"a: 1\n  password: {MASK}\nb: 2"),
        ("Cookie: a=b; c=d\nHost: x", f"Cookie: {MASK}\nHost: x"),
        ("Authorization: Digest a=b, c=d", f"Authorization: {MASK}"),
        (f"card {CARD} 12/26", f"card {MASK} 12/26"),
        ("4111 1111 1111 1111 123", f"{MASK} 123"),
        (PEM[:40], MASK),
    ],
)
def test_a_secret_in_a_text(text: str, expected: str) -> None:
    assert REDACTOR.text(text) == expected
    assert REDACTOR.text(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Unexpected token: foo",
        "basic authentication failed, bearer authentication too",
        "password=None token=null secret=true password=",
        "if token == expected",
        "order 4111111111111112 at 1700000000000000",
        "postgres://host:5432/shop and ann@x.org",
        "token_count=5",
        "passwords must have 8 characters",
    ],
)
def test_a_text_without_secrets_is_unchanged(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_luhn() -> None:
    assert is_card(CARD)
    assert is_card("378282246310005")
    assert not is_card("4111111111111112")


def test_headers_keep_their_order_and_repeats_and_show_any_byte() -> None:
    headers = (
        ("trace", b"1"),
        ("X-Api-Key", b"hunter2"),
        ("trace", b"2"),
        ("raw", b"caf\xe9\x1b[2J"),
        ("note", b"Bearer abc123def"),
        ("cookie", b""),
    )
    assert REDACTOR.headers(headers) == [
        ("trace", "1"),
        ("X-Api-Key", MASK),
        ("trace", "2"),
        ("raw", "caf\\xe9\\x1b[2J"),
        ("note", f"Bearer {MASK}"),
        ("cookie", ""),
    ]


def test_a_json_body_is_masked_at_any_depth_and_stays_as_it_was() -> None:
    body = b"""{"z": 1.10, "a": [{"Password": "x", "n": 12345678901234567890123}], "apiKey": {"k": [1]},
               "token": null, "note": "password=hunter2", "card": 4111111111111111, "token_count": 5}"""
    assert REDACTOR.body(body) == (
        '{"z": 1.10, "a": [{"Password": "[redacted]", "n": 12345678901234567890123}], "apiKey": "[redacted]",\n'
        '               "token": null, "note": "password=[redacted]", "card": "[redacted]", "token_count": 5}'
    )


def test_a_word_that_is_no_secret_is_one_where_it_is_a_key() -> None:
    assert REDACTOR.body(b'["password", {"password": ["x"]}]') == '["password", {"password": "[redacted]"}]'


def test_what_is_under_a_secret_key_is_hidden_at_any_depth() -> None:
    deep = b"[" * 50_000 + b'"hunter2"' + b"]" * 50_000
    assert REDACTOR.body(b'{"token": ' + deep + b', "n": {"pwd": [ ]}}') == '{"token": "[redacted]", "n": {"pwd": [ ]}}'


def test_json_in_json_is_masked_too() -> None:
    body = json.dumps({"payload": json.dumps({"password": "hunter2", "id": 5})}).encode()
    assert "hunter2" not in REDACTOR.body(body)


@pytest.mark.parametrize("body", [b"{broken", b"[" * 5000, b"NaN", b"plain text", b"", "grüße".encode()])
def test_what_is_no_json_is_text(body: bytes) -> None:
    assert REDACTOR.body(body) == body.decode()


def test_text_with_a_stray_byte_is_still_text() -> None:
    assert REDACTOR.body(b"caf\xe9 password=hunter2") == f"caf\\xe9 password={MASK}"


def test_binary_is_a_preview_in_hex_with_its_length() -> None:
    assert REDACTOR.body(b"\x00\x01\xff") == "binary, 3 bytes: 00 01 ff"
    shown = REDACTOR.body(bytes(range(128, 256)) * 16)
    assert shown.startswith("binary, 2,048 bytes: 80 81")
    assert shown.endswith(" … 1,984 more bytes")


def test_a_long_body_is_cut_and_says_so() -> None:
    assert REDACTOR.body(b"word " * 100, limit=50) == "word " * 10 + " … 450 more bytes"
    assert REDACTOR.body(b'{"a":"' + b"x" * 100 + b'"}', limit=10) == '{"a":"xxxx … 98 more bytes'


def test_a_cut_leaves_no_half_secret() -> None:
    body = b"x " * 20 + AWS.encode() + b" tail"
    for limit in range(1, len(body)):
        assert AWS[:8] not in REDACTOR.body(body, limit=limit)


def test_a_large_json_body_is_masked_as_text() -> None:
    body = b'{"password": "hunter2", "fill": "' + b"x" * (1 << 20) + b'"}'
    shown = REDACTOR.body(body)
    assert "hunter2" not in shown
    assert "more bytes" in shown


def test_keys_and_patterns_of_the_user() -> None:
    redactor = Redactor(keys=["patient"], patterns=[r"CASE-\d+"])
    assert redactor.body(b'{"patient":"Ann","note":"see CASE-17","password":"x"}') == (
        '{"patient":"[redacted]","note":"see [redacted]","password":"[redacted]"}'
    )


def test_the_defaults_can_be_left_out() -> None:
    redactor = Redactor(keys=["patient"], defaults=False)
    assert redactor.body(b'{"patient":"Ann","password":"x"}') == '{"patient":"[redacted]","password":"x"}'
    assert redactor.text(CARD) == CARD


@pytest.mark.parametrize("pattern", ["(", "a*", ""])
def test_a_pattern_that_cannot_be_used_is_named(pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Redactor(patterns=[pattern])
    assert repr(pattern) in str(caught.value)


HOSTILE = ["a=", 'a="', "'", "-", "eyJaaaaaaaaaa-", "://a:", "Bearer ", "password=", "a_", "4", "4 ", "\\", "(secret=["]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_comes_to_an_end(piece: str) -> None:
    """A pattern that is not linear would keep this test busy for hours."""
    text = piece * (500_000 // len(piece))
    assert REDACTOR.text(text)


def test_it_is_made_from_the_setting() -> None:
    redactor = Redactor.of(Redaction(keys=("house",), patterns=("blue",), defaults=False))
    assert redactor.text("house=7 door=blue password=x") == f"house={MASK} door={MASK} password=x"
