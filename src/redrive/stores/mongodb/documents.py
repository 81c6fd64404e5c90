"""Small JSON objects in a collection. They are kept as JSON text: not every key of JSON may be one of MongoDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from redrive.stores.base import Document
from redrive.stores.mongodb.access import Access, Fields


class MongoDocuments:
    """Keeps small JSON objects."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._collection = access.documents

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        content = {"body": msgspec.json.encode(body).decode()}
        with self._access.translated_errors():
            try:
                if expect == 0:
                    await self._collection.insert_one({"_id": _name(kind, id), "version": 1, **content})
                    return True
                wanted: Fields = {"_id": _name(kind, id)} | ({} if expect is None else {"version": expect})
                change = {"$set": content, "$inc": {"version": 1}}
                result = await self._collection.update_one(wanted, change, upsert=expect is None)
                return bool(result.matched_count) or result.upserted_id is not None
            except DuplicateKeyError:
                if expect is None:  # two made it at once: now it is there
                    return await self.put(kind, id, body)
                return False

    async def get(self, kind: str, id: str) -> Document | None:
        with self._access.translated_errors():
            found = await self._collection.find_one({"_id": _name(kind, id)})
        return None if found is None else _document(kind, found)

    async def list(
        self, kind: str, *, limit: int = 1000, after: str | None = None, ascending: bool = False
    ) -> Sequence[Document]:
        bounds = {"$gte": _name(kind, ""), "$lt": kind + "\x01"}
        if after is not None:
            bounds |= {"$gt": _name(kind, after)} if ascending else {"$lt": _name(kind, after)}
        with self._access.translated_errors():
            cursor = self._collection.find({"_id": bounds}).sort("_id", 1 if ascending else -1)
            found = await cursor.limit(limit).to_list()
        return [_document(kind, document) for document in found]

    async def delete(self, kind: str, id: str, *, expect: int | None = None) -> bool:
        wanted: Fields = {"_id": _name(kind, id)} | ({} if expect is None else {"version": expect})
        with self._access.translated_errors():
            return bool((await self._collection.delete_one(wanted)).deleted_count)


def _name(kind: str, id: str) -> str:
    return f"{kind}\0{id}"


def _document(kind: str, found: Fields) -> Document:
    return Document(kind, found["_id"].partition("\0")[2], found["version"], msgspec.json.decode(found["body"]))
