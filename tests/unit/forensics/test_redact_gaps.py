"""Each way in which a secret was seen once, and is not any more."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import msgspec
import pytest

from redrive.forensics.redact import Redactor
from redrive.forensics.views import detail
from redrive.telemetry.logs import setup_logs
from redrive.testing.builders import make_failure, make_letter, make_message

S = "hunter2Xq"
REDACTOR = Redactor()
TOKEN = "a1B2" * 9
KEYED = {"password": S, "n": 1}
NESTED = json.dumps({"a": json.dumps({"b": json.dumps(KEYED)})})
STACK = f'Traceback (most recent call last):\n  File "x.py", line 1, in f\nRuntimeError: password: {S}'

TEXTS = {
    **{f"key {key}": f"{key}={S}" for key in ("pass", "auth", "credential", "otp", "passcode", "sig")},
    "mid-line": f"RuntimeError: password: {S}",
    "stack": STACK,
    "argument": f"run --password {S} --verbose",
    "arguments": f'["run", "--password", "{S}"]',
    "rocket": f"password => {S}",
    "walrus": f"password := {S}",
    "element": f"<a><password>{S}</password></a>",
    "element with attribute": f'<n:password type="x">{S}</n:password>',
    "attribute": f'<user password="{S}"/>',
    "escaped": json.dumps(json.dumps(KEYED)),
    "escaped thrice": NESTED,
    "pair": json.dumps([{"name": "password", "value": S}]),
    "pair k v": json.dumps({"k": "password", "v": S}),
    "pair key value": json.dumps({"key": "password", "value": S}),
    "pair, value first": json.dumps({"value": S, "name": "password"}),
    "multipart": f'--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{S}\r\n--b--',
    "signature": f"https://b.s3.amazonaws.com/k?X-Amz-Signature={S}&x=1",
    "URL with / # ?": f"postgres://ann:{S}/a#b?c@host/db",
    "broken JSON": f'{{"password": "{S}", "x": [1, ',
    "hidden key": f'{{"p\\u0061ssword": "{S}"}}',
    "call": f"Settings(password=SecretStr('{S}'))",
    "block": f"password: |\n  {S}\n  {S}\nnext: 1",
}
SHAPED = {
    "token as URL user": f"https://{TOKEN}@github.com/x",
    "Slack webhook": "https://hooks.slack.com/services/T0000/B0000/" + TOKEN,
    "Vault": "hvs." + TOKEN,
    "Google": "ya29." + TOKEN,
    "AWS": "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY",
    "IBAN": "DE89 3704 0044 0532 0130 00",
    "SSN": "078-05-1120",
}


@pytest.mark.parametrize("carrier", TEXTS)
def test_a_secret_is_masked_in(carrier: str) -> None:
    shown = REDACTOR.text(TEXTS[carrier])
    assert S not in shown
    assert REDACTOR.text(shown) == shown
    assert S not in REDACTOR.body(TEXTS[carrier].encode())
    assert S not in REDACTOR.body(TEXTS[carrier].encode("utf-16"))


@pytest.mark.parametrize("carrier", ["escaped", "escaped thrice", "pair", "pair k v", "pair key value"])
def test_json_stays_json(carrier: str) -> None:
    json.loads(REDACTOR.text(TEXTS[carrier]))


@pytest.mark.parametrize("kind", SHAPED)
def test_a_secret_is_known_by_its_looks(kind: str) -> None:
    secret = SHAPED[kind]
    assert secret[-10:].split("@")[0] not in REDACTOR.text(f"before {secret} after").replace("github.com/x", "")


def test_bytes_are_masked_too() -> None:
    assert S not in REDACTOR.body(msgspec.msgpack.encode(KEYED))
    for data in (b"\x00\x01\xffpassword\x09" + S.encode(), b"\x00\x00\xff" + f"password={S}".encode("utf-16-le")):
        assert S.encode().hex(" ") not in REDACTOR.body(data)
        assert S.encode("utf-16-le").hex(" ") not in REDACTOR.body(data)


@pytest.mark.parametrize("length", [1, 7, 9, 10, 13, 35, 65, 100, 127, 128, 300, 5000])
def test_a_value_behind_a_key_in_bytes_that_look_like_a_text_is_hidden(length: int) -> None:
    """As Protobuf has it in a map: a tag, the length (of more than 127 in two bytes), and the value."""
    size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    shown = REDACTOR.body(b"a note of yours\n\x08password\x12" + size + b"S" * length)
    assert shown == "a note of yours\n\\x08password[redacted]"


def test_a_huge_body_is_masked_and_cut() -> None:
    shown = REDACTOR.body(json.dumps({"password": S, "fill": [1] * 1_000_000}).encode())
    assert S not in shown
    assert len(shown) < 70_000


def test_ids_tenant_and_names_of_headers_are_masked() -> None:
    secret = "ghp_" + TOKEN
    message = make_message(
        id=secret, tenant=secret, key=secret.encode(), correlation_id=secret, headers=((secret, b"1"),)
    )
    shown = detail(make_letter(message, make_failure(message=f"password: {S}", stack=STACK)), REDACTOR)
    written = msgspec.json.encode(msgspec.structs.replace(shown, id="")).decode()
    assert secret not in written
    assert S not in written


@pytest.fixture
def root() -> Iterator[None]:
    """The logging of the tests, as it was."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


EXTRA = {
    "note": f"token={S}",
    "password": S,
    "headers": [("x-api-key", S), [b"cookie", S.encode()]],
    "env": [{"name": "DB_PASSWORD", "value": S}],
}


@pytest.mark.parametrize("format", ["console", "json"])
def test_logs_have_no_secret_and_no_variables(root: None, format: str) -> None:
    out = io.StringIO()
    setup_logs("info", format, out)
    card = "4111 1111 1111 1111"
    local = "a variable " + card
    try:
        raise RuntimeError(f"password: {S}")
    except RuntimeError:
        logging.getLogger("x").exception("failed with %s", card, extra=EXTRA)
    assert local
    assert "RuntimeError" in out.getvalue()
    assert S not in out.getvalue()
    assert card not in out.getvalue()
    assert "a variable" not in out.getvalue().replace('local = "a variable', "")
