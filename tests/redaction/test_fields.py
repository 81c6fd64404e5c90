"""Every text of a letter is masked where it is shown, whichever field it stands in: a new field is asked, too."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.flow.held import HeldKey
from redrive.forensics.carried import carried
from redrive.forensics.held import held_view
from redrive.forensics.redact import Redactor
from redrive.forensics.views import detail
from redrive.model import Failure, Letter, Message
from redrive.testing.builders import make_failure, make_letter, make_message

TOKEN = "ghp_" + "a1B2c3D4" * 5
NAMED_BY_USERS = {"source", "transport", "type", "worker", "version"}
"""Names of queues and of code, which whoever runs Redrive gave them."""
MADE_BY_US = {"group", "replay", "owner"}


def _letter() -> Letter:
    message = replace(make_message(), **_secret(Message), body=TOKEN.encode(), key=TOKEN.encode())
    message = replace(message, headers=((f"x-{TOKEN}", b"1"), ("x-note", TOKEN.encode())))
    failure = replace(make_failure(), **_secret(Failure), frames=(f"{TOKEN}:f",))
    return replace(make_letter(message, failure), depends_on=(f"order-{TOKEN}",))


def _secret(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Every field that is a text, with a secret in it."""
    named = {field.name for field in msgspec.structs.fields(kind) if field.type in (str, str | None)}
    return {name: f"{name}-{TOKEN}" for name in named - NAMED_BY_USERS - MADE_BY_US}


def _texts(value: Any) -> Iterator[str]:
    yield json.dumps(value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(part)
    if isinstance(value, str):
        try:
            yield b64decode(value, validate=True).decode()
        except ValueError:
            return


def test_no_field_of_a_letter_is_shown_unmasked() -> None:
    letter, redactor = _letter(), Redactor()
    held = HeldKey(
        transport="default",
        source="orders",
        key=TOKEN.encode(),
        members=(letter.message.id,),
        since=letter.created_at,
        longest=timedelta(hours=1),
    )
    views = detail(letter, redactor), carried(letter, redactor, raw=False), held_view(held, letter, redactor)
    for view in views:
        for name, value in msgspec.to_builtins(view).items():
            assert not any(TOKEN in text for text in _texts(value)), f"{type(view).__name__}.{name} shows it: {value}"
    raw = msgspec.to_builtins(carried(letter, redactor, raw=True))
    assert any(TOKEN in text for text in _texts(raw["body"])), "this test would see it"
