"""What is shown of a message of a dead-letter queue has no secret in it, wherever and however that is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from redrive.forensics.redact import Redactor
from redrive.systems.files.dead_letters import shown
from redrive.transports.rabbitmq.redrive import DeadMessage

SECRET = "S3cr3t" + "HunterXq9Zw7"
TOKEN = "ghp_" + "a1B2c3D4" * 5
MESSAGE = DeadMessage("m-1", "parking", "dlq.q.audit", False, {}, {}, b'{"n":1}')


@pytest.mark.parametrize(
    "changed",
    [
        {"body": b'{"password":"%s"}' % SECRET.encode()},
        {"body": f'{{"password":"{SECRET}"}}'.encode("utf-16")},
        {"body": msgspec.msgpack.encode({"password": SECRET})},
        {"body": b"\xff\x00\x01" + TOKEN.encode()},
        {"message_id": f"order-{TOKEN}"},
        {"properties": {"correlation_id": TOKEN}},
        {"headers": {"authorization": SECRET}},
        {"headers": {"x-password": SECRET.encode()}},
        {"headers": {"x-note": b"\xff\x00\x01" + TOKEN.encode()}},
        {"headers": {"deep": {"password": SECRET, "list": [{"name": "token", "value": SECRET}]}}},
        {"headers": {TOKEN: 1}},
    ],
)
def test_nothing_of_a_dead_message_is_shown_unmasked(changed: dict[str, Any]) -> None:
    said = msgspec.json.encode(shown(replace(MESSAGE, **changed), Redactor())).decode()
    for secret in (SECRET, TOKEN):
        assert secret not in said
        for encoded in (secret.encode().hex(" "), secret.encode("utf-16-le").hex(" ")):
            assert encoded not in said


def test_what_is_harmless_is_shown_as_it_is() -> None:
    headers = {"deep": {"n": 1, "list": [True, None, 1.5]}, "x-death": [{"queue": "q.audit", "count": 2}]}
    told = shown(replace(MESSAGE, headers=headers, properties={"priority": 3}), Redactor())
    assert (told.message_id, told.body, told.encoding) == ("m-1", '{"n":1}', "text")
    assert (told.headers, told.properties) == (headers, {"priority": 3})
    binary = shown(replace(MESSAGE, body=b"\xff\x00"), Redactor())
    assert (binary.body, binary.encoding, binary.size) == ("binary, 2 bytes: ff 00", "binary", 2)
