"""A test with a dead message as its fixture: it fails as the letter did, until the cause is mended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from redrive.forensics.carried import CarriedMessage, message_of
from redrive.model import Message

_WIDTH = 80  # bytes of a body on one line


def test_file(found: CarriedMessage, target: str) -> str:
    """The text of the test."""
    message, name = message_of(found), _name(target)
    told = f"{found.error_type}: {found.error_message}"
    masked = "\nIts secrets are masked: it may fail of that, and not of what the letter died of.\n"
    return f'''"""A dead letter as a test: {_comment(found.letter)} of {_comment(found.source)}.

It died of {_comment(told)}
The test fails in the same way until that is mended, and holds it from then on. Nothing that the handler sends
through its Redrive app is sent. Written by `redrive debug`.
{masked if found.redacted else ""}"""

from __future__ import annotations

from datetime import datetime

import pytest

from redrive import Message
from redrive.testing.handling import handle


@pytest.fixture
def message() -> Message:
    """As it was received."""
    return Message(
{_fields(message)}
    )


def test_{name}_handles_letter_{_identifier(found.letter)}(message: Message) -> None:
    handle({target!r}, message)
'''


def _fields(message: Message) -> str:
    fields = [f"id={message.id!r}", f"source={message.source!r}", f"body={_bytes(message.body)}"]
    fields.append(f"enqueued_at=datetime.fromisoformat({message.enqueued_at.isoformat()!r})")
    if message.headers:
        fields.append(f"headers={message.headers!r}")
    optional = {name: getattr(message, name) for name in ("key", "tenant", "correlation_id")}
    fields += [f"{name}={value!r}" for name, value in optional.items() if value is not None]
    fields += [f"attempt={message.attempt}", f"origin={message.origin!r}"]
    return "\n".join(f"        {field}," for field in fields)


def _bytes(body: bytes) -> str:
    if len(body) <= _WIDTH:
        return repr(body)
    lines = "\n".join(f"            {part!r}" for part in _parts(body))
    return f"(\n{lines}\n        )"


def _parts(body: bytes) -> Iterator[bytes]:
    return (body[start : start + _WIDTH] for start in range(0, len(body), _WIDTH))


def _name(target: str) -> str:
    return _identifier(target.rpartition(":")[2] or "handler")


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text, flags=re.ASCII) or "_"


def _comment(text: str) -> str:
    """Text of others on one line of a docstring, which it cannot end."""
    line = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    return line.replace("\\", "/").replace('"', "'")[:300]
