"""How a letter looks as a document of a store.

The ready systems keep the documents of their contracts; a shape is the whole difference between them. A document
store writes `dump(letter)` and reads `load(document)`; a store with columns of its own (SQLite) writes
`encode(letter)`. What changes after the letter was written (state, lease, counters) belongs to the store, which
lays it over what the shape loads.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from typing import Any, ClassVar, Protocol

import msgspec

from redrive.model import Letter

Document = dict[str, Any]


class Shape(Protocol):
    """Dump and load are inverse: `load(dump(letter)) == letter`, to the byte."""

    name: str

    def dump(self, letter: Letter) -> Document: ...

    def load(self, document: Document) -> Letter: ...

    def encode(self, letter: Letter) -> bytes: ...

    def decode(self, data: bytes) -> Letter: ...


class DocumentShape:
    """The base of the systems' shapes: write `dump` and `load`, and the bytes follow.

    `mapping` names the types of those fields that a search engine is to search by; the others it only keeps.
    """

    name = "document"
    mapping: ClassVar[Document] = {}

    def dump(self, letter: Letter) -> Document:
        raise NotImplementedError

    def load(self, document: Document) -> Letter:
        raise NotImplementedError

    def encode(self, letter: Letter) -> bytes:
        return msgspec.json.encode(self.dump(letter))

    def decode(self, data: bytes) -> Letter:
        return self.load(msgspec.json.decode(data))


class Shrinks(Protocol):
    """A shape that has a smaller document for a letter whose `dump` is more than its store can hold."""

    def dump_small(self, letter: Letter, kept: Letter, why: str) -> Document:
        """The document that `load` reads as `kept`, and that says why it is small. `kept` is the letter, or it
        without its body where that is kept elsewhere."""
        ...


class NativeShape(DocumentShape):
    """Redrive's own fields under their own names. As bytes it is msgpack, which carries bodies as they are."""

    name = "redrive"

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Letter)

    def encode(self, letter: Letter) -> bytes:
        return self._encoder.encode(letter)

    def decode(self, data: bytes) -> Letter:
        return self._decoder.decode(data)

    def dump(self, letter: Letter) -> Document:
        document: Document = msgspec.to_builtins(letter)
        return document

    def load(self, document: Document) -> Letter:
        return msgspec.convert(document, Letter)


NATIVE = NativeShape()
_OURS, _WHOLE = "redrive", "native"
_MARK = b"redrive-native\0"
log = logging.getLogger("redrive")


def dumped(shape: Shape, letter: Letter) -> Document:
    """The document of a letter. What a message does to its shape cannot keep it out of the store: a letter that has
    no document of that shape is kept whole under `redrive`."""
    try:
        return shape.dump(letter)
    except Exception as error:
        _warn(shape, letter, error)
        return {_OURS: {_WHOLE: b64encode(NATIVE.encode(letter)).decode()}}


def loaded(shape: Shape, document: Document) -> Letter:
    """The letter that `dumped` wrote."""
    ours = document.get(_OURS)
    if isinstance(ours, dict) and ours.keys() == {_WHOLE}:
        return NATIVE.decode(b64decode(ours[_WHOLE]))
    return shape.load(document)


def encoded(shape: Shape, letter: Letter) -> bytes:
    """As `dumped`, as bytes."""
    try:
        return shape.encode(letter)
    except Exception as error:
        _warn(shape, letter, error)
        return _MARK + NATIVE.encode(letter)


def decoded(shape: Shape, data: bytes) -> Letter:
    """The letter that `encoded` wrote."""
    return NATIVE.decode(data[len(_MARK) :]) if data.startswith(_MARK) else shape.decode(data)


def _warn(shape: Shape, letter: Letter, error: Exception) -> None:
    log.warning("letter %s has no %s document, and is kept whole: %r", letter.id, shape.name, error)
