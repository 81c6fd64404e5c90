"""Every store keeps every promise, in every shape (the suite is redrive.testing.stores)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive.model import Letter
from redrive.stores.base import Store
from redrive.stores.memory import MemoryStore
from redrive.stores.shape import NATIVE, Document, DocumentShape, Shape
from redrive.stores.sqlite import SqliteStore
from redrive.testing.stores import LETTERS, StoreBackend, StoreSuite


class MailShape(DocumentShape):
    """What a ready system's contract could ask for: names of its own, and Redrive's fields under one key."""

    name = "mail"

    def dump(self, letter: Letter) -> Document:
        ours: dict[str, Any] = msgspec.to_builtins(letter)
        message = ours.pop("message")
        return {
            "mail_id": message.pop("id"),
            "raw": base64.b85encode(letter.message.body).decode(),
            "status": {"pending": "QUEUED"}.get(letter.state, letter.state.upper()),
            "errors": [failure["message"] for failure in ours["failures"]],
            "_redrive": {**ours, "message": {**message, "body": None}},
        }

    def load(self, document: Document) -> Letter:
        ours = dict(document["_redrive"])
        body = base64.b64encode(base64.b85decode(document["raw"])).decode()
        ours["message"] = {**ours["message"], "id": document["mail_id"], "body": body}
        return msgspec.convert(ours, Letter)


class MemoryBackend(StoreBackend):
    async def open(self) -> Store:
        return MemoryStore()


class SqliteBackend(StoreBackend):
    def __init__(self, path: Path, shape: Shape) -> None:
        self.url = f"sqlite:///{path}"
        self.shape = shape

    async def open(self) -> Store:
        return SqliteStore(self.url, shape=self.shape)


class TestMemory(StoreSuite):
    @pytest.fixture
    def backend(self) -> StoreBackend:
        return MemoryBackend()


class TestSqlite(StoreSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> StoreBackend:
        return SqliteBackend(tmp_path / "letters.db", NATIVE)


class TestSqliteInAnotherShape(StoreSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> StoreBackend:
        return SqliteBackend(tmp_path / "letters.db", MailShape())


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS.keys())
@pytest.mark.parametrize("shape", [NATIVE, MailShape()], ids=lambda shape: str(shape.name))
def test_a_shape_loads_what_it_dumped(shape: Shape, letter: Letter) -> None:
    assert shape.load(shape.dump(letter)) == letter
    assert shape.decode(shape.encode(letter)) == letter
