"""The body of a letter of the pipeline is shown in its schema, masked, and nothing else of the letter changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.redact import Redactor
from redrive.forensics.views import DecodedBody, detail
from redrive.model import Letter
from redrive.service import Service
from redrive.systems.decoding import decoded_body
from redrive.systems.pipeline import DlqMessage, Document, PipeStream, Step, pipeline_pb2
from redrive.testing.builders import make_letter, make_message
from tests.actors import acting

TOKEN = "ghp_" + "a1B2c3D4" * 5


def stream(content: bytes = b"<p>hello</p>", **changes: Any) -> PipeStream:
    document = Document(document_id="report.html", content_type="text/html", content=content)
    return PipeStream(**{"stream_id": "s-1", "document": document, "hop_count": 2, **changes})


def letter(body: bytes, transport: str = "pipeline") -> Letter:
    return make_letter(make_message(body=body), transport=transport)


def shown(body: bytes, transport: str = "pipeline") -> DecodedBody | None:
    return decoded_body(letter(body, transport), Redactor())


def told(body: bytes) -> Any:
    found = shown(body)
    assert found is not None
    return json.loads(found.text)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Redrive(settings=Settings(store="memory://", transports={"default": "memory://"})) as app:
        yield Service(app)


def test_a_stream_is_told_in_the_words_of_its_schema() -> None:
    sent = stream(history=[Step(node_id="n-1", outcome=Step.FAILED, attempt=1)], metadata={"do": "upper"})
    sent.history[0].started_at.FromJsonString("2026-03-01T12:30:15.250Z")
    found = shown(sent.SerializeToString())
    assert found is not None
    assert (found.format, found.schema) == ("Protobuf", "redrive.pipeline.PipeStream")
    assert json.loads(found.text) == {
        "stream_id": "s-1",
        "document": {"document_id": "report.html", "content_type": "text/html", "content": "<p>hello</p>"},
        "hop_count": 2,
        "history": [
            {"node_id": "n-1", "outcome": "FAILED", "attempt": 1, "started_at": "2026-03-01T12:30:15.250Z"},
        ],
        "metadata": {"do": "upper"},
    }


def test_a_dead_stream_is_told_with_the_stream_in_it() -> None:
    dead = DlqMessage(stream=stream(), error_type="TIMEOUT", original_offset=1007)
    found = shown(dead.SerializeToString())
    assert found is not None
    assert found.schema == "redrive.pipeline.DlqMessage"
    said = json.loads(found.text)
    assert (said["error_type"], said["stream"]["document"]["content"]) == ("TIMEOUT", "<p>hello</p>")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"\xff\xfe\x00",
        stream().SerializeToString()[:-3],
        stream(stream_id="").SerializeToString(),
        DlqMessage(error_type="MALFORMED").SerializeToString(),
        b"\x0b" * 100_000,  # groups in groups
        stream().SerializeToString() + b"\x2a\x0b\x2a\x09\x08\xff\xff\xff\xff\xff\xff\xff\x7f",  # a step of no year
    ],
)
def test_bytes_that_are_none_of_its_messages_are_shown_as_before(body: bytes) -> None:
    assert shown(body) is None


def test_a_letter_of_another_transport_is_not_read() -> None:
    assert shown(stream().SerializeToString(), transport="default") is None


def test_a_large_document_is_cut_and_the_rest_stays_json() -> None:
    said = told(stream(b"word " * 800_000, metadata={"after": "it"}).SerializeToString())
    assert len(said["document"]["content"]) < 20_000
    assert said["document"]["content"].endswith(" more bytes")
    assert said["metadata"] == {"after": "it"}


def test_one_with_too_much_beside_its_document_is_not_told() -> None:
    assert shown(stream(metadata={f"m{n}": "x" * 100 for n in range(5000)}).SerializeToString()) is None
    assert shown(stream(b"x" * (9 << 20)).SerializeToString()) is None


@pytest.mark.parametrize(
    "content",
    [
        TOKEN.encode(),
        b'{"password": "' + TOKEN[4:].encode() + b'"}',
        b"\x00\x01\xff" + TOKEN.encode(),
        b"\xff\xfe" + TOKEN.encode("utf-16-le"),
        msgspec.msgpack.encode({"password": TOKEN[4:]}),
    ],
)
def test_a_secret_in_its_bytes_is_masked(content: bytes) -> None:
    said = told(stream(content).SerializeToString())["document"]["content"]
    plain = said.replace(" ", "")
    assert TOKEN[4:] not in plain
    assert TOKEN[4:].encode().hex() not in plain


def test_a_secret_in_its_fields_is_masked() -> None:
    metadata = {"password": "hunter2", "note": f"use {TOKEN}", "nested": '{"password": "hunter2"}'}
    found = shown(stream(metadata=metadata).SerializeToString())
    assert found is not None
    assert "hunter2" not in found.text
    assert TOKEN not in found.text
    assert json.loads(found.text)["metadata"]["password"] == "[redacted]"


def test_the_document_is_all_of_the_schema_that_is_bytes() -> None:
    """json_format writes bytes in Base64, where nobody finds a secret: they are taken out before."""
    messages = pipeline_pb2.DESCRIPTOR.message_types_by_name.values()
    found = [field.full_name for kind in messages for field in kind.fields if field.type == field.TYPE_BYTES]
    assert found == ["redrive.pipeline.Document.content"]


async def test_a_letter_is_shown_with_it_and_otherwise_as_before(service: Service) -> None:
    made = letter(stream(TOKEN.encode()).SerializeToString())
    await service.app.store.letters.record([made])
    found = await service.letter(made.id)
    assert found.decoded is not None
    assert TOKEN not in found.decoded.text
    before = msgspec.structs.replace(detail(made, service.redactor), decoded=found.decoded)
    assert found == before


async def test_who_may_unmask_sees_the_real_one(service: Service) -> None:
    made = letter(stream(TOKEN.encode()).SerializeToString())
    await service.app.store.letters.record([made])
    found = await service.unmask(made.id, actor=acting("ann"), reason="ticket 4711")
    assert found.decoded is not None
    assert json.loads(found.decoded.text)["document"]["content"] == TOKEN
    assert (await service.carried(made.id)).decoded is None


WITHOUT = """
import asyncio, sys
sys.modules["google"] = sys.modules["grpc"] = None
from redrive import Redrive
from redrive.config.settings import Settings
from redrive.service import Service
from redrive.testing.builders import make_letter, make_message

async def main():
    async with Redrive(settings=Settings(store="memory://", transports={"default": "memory://"})) as app:
        letter = make_letter(make_message(body=bytes.fromhex(sys.argv[1])), transport="pipeline")
        await app.store.letters.record([letter])
        print((await Service(app).letter(letter.id)).decoded)

asyncio.run(main())
"""


def test_without_the_libraries_a_letter_has_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, stream().SerializeToString().hex()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")
