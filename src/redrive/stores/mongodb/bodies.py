"""Bodies that are too large for one document of MongoDB, in pieces beside their letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bson.binary import Binary

from redrive.model import Letter
from redrive.stores.mongodb.access import Collection

LARGEST = 8 << 20
"""A document ends at 16 MiB, and failures and headers need their room."""


class Bodies:
    """Keeps bodies in pieces with the token of their write: a letter that is written anew gets new ones first."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection

    async def write(self, letter: Letter, by: str) -> int:
        """Write a body in pieces if it is too large; returns how many, as a rule none."""
        body = letter.message.body
        if len(body) <= LARGEST:
            return 0
        pieces = range(0, len(body), LARGEST)
        for number, start in enumerate(pieces):
            piece = {"letter": letter.id, "by": by, "data": Binary(body[start : start + LARGEST])}
            await self._collection.insert_one({"_id": f"{letter.id}/{by}/{number}", **piece})
        return len(pieces)

    async def read(self, document: dict[str, Any]) -> bytes | None:
        """Read the body, if it is not in the document itself."""
        store = document["_store"]
        if "parts" not in store:
            return None
        names = [f"{document['_id']}/{store['body']}/{number}" for number in range(store["parts"])]
        found = {piece["_id"]: piece["data"] async for piece in self._collection.find({"_id": {"$in": names}})}
        return b"".join(found[name] for name in names)

    async def drop(self, documents: Sequence[dict[str, Any]]) -> None:
        """Delete the pieces of documents that are gone."""
        gone = [
            (document["_id"], document["_store"]["body"]) for document in documents if "parts" in document["_store"]
        ]
        for letter, by in gone:
            await self._collection.delete_many({"letter": letter, "by": by})
