"""How a letter looks as a document of a store.

The ready systems keep the documents of their contracts; a shape is the whole difference between them. A document
store writes `dump(letter)` and reads `load(document)`; a store with columns of its own (SQLite) writes
`encode(letter)`. What changes after the letter was written (state, lease, counters) belongs to the store, which
lays it over what the shape loads.
"""

from __future__ import annotations

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
