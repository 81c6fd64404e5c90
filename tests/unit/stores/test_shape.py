"""What a message does to its shape cannot keep its letter out of a store."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from redrive.model import Letter
from redrive.stores.shape import NATIVE, Document, DocumentShape, decoded, dumped, encoded, loaded
from redrive.stores.sqlite import SqliteStore
from redrive.testing.builders import make_letter, make_message


class Picky(DocumentShape):
    """Has no document for what is bad."""

    name = "picky"

    def dump(self, letter: Letter) -> Document:
        if letter.message.id == "bad":
            raise RecursionError("too deep for it")
        return {"own": True, "redrive": msgspec.to_builtins(letter)}

    def load(self, document: Document) -> Letter:
        return msgspec.convert(document["redrive"], Letter)


LETTERS = [make_letter(make_message(id=name, body=b"\xff\x00", headers=(("a", b"\xfe"),))) for name in ("good", "bad")]


@pytest.mark.parametrize("letter", LETTERS, ids=["good", "bad"])
def test_every_letter_comes_back_from_its_document(letter: Letter) -> None:
    document = dumped(Picky(), letter)
    assert ("own" in document) == (letter.message.id == "good")
    assert loaded(Picky(), msgspec.json.decode(msgspec.json.encode(document))) == letter
    assert decoded(Picky(), encoded(Picky(), letter)) == letter
    assert decoded(NATIVE, encoded(NATIVE, letter)) == letter


async def test_a_store_keeps_both(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path / 'letters.db'}", shape=Picky())
    await store.letters.record(LETTERS)
    assert [await store.letters.get(letter.id) for letter in LETTERS] == LETTERS
    await store.aclose()
