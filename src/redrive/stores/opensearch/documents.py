"""Small JSON objects as documents of an index."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from redrive.stores.base import Document
from redrive.stores.opensearch.access import OK, Access, Action, Json, Op
from redrive.stores.opensearch.schema import Schema

_PAGE = 1000


class OpenSearchDocuments:
    """Keeps small JSON objects."""

    def __init__(self, access: Access, schema: Schema) -> None:
        self._access = access
        self._schema = schema
        self._index = schema.documents

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        await self._schema.ready()
        while True:  # until nobody writes between our reading and our writing
            old = await self._read(kind, id)
            version = old["_source"]["version"] if old else 0
            if expect is not None and version != expect:
                return False
            source = msgspec.json.encode({"kind": kind, "id": id, "version": version + 1, "body": body})
            guard = None if old is None else (old["_seq_no"], old["_primary_term"])
            action = Action(Op.CREATE if old is None else Op.INDEX, _key(kind, id), source, guard)
            [status] = await self._access.write(self._index, [action])
            if status in OK:
                return True

    async def get(self, kind: str, id: str) -> Document | None:
        await self._schema.ready()
        found = await self._read(kind, id)
        return None if found is None else _document(found)

    async def list(
        self, kind: str, *, limit: int = 1000, after: str | None = None, ascending: bool = False
    ) -> Sequence[Document]:
        await self._schema.ready()
        await self._access.refresh(self._index)
        body = {"query": {"term": {"kind": kind}}, "sort": [{"id": "asc" if ascending else "desc"}]}
        place = None if after is None else [after]
        pages = self._access.pages(self._index, body, size=_PAGE, limit=limit, after=place)
        return [_document(hit) async for hits in pages for hit in hits]

    async def delete(self, kind: str, id: str, *, expect: int | None = None) -> bool:
        await self._schema.ready()
        guard = None
        if expect is not None:
            old = await self._read(kind, id)
            if old is None or old["_source"]["version"] != expect:
                return False
            guard = old["_seq_no"], old["_primary_term"]
        [status] = await self._access.write(self._index, [Action(Op.DELETE, _key(kind, id), version=guard)])
        return status in OK

    async def _read(self, kind: str, id: str) -> Json | None:
        found = await self._access.read(self._index, [_key(kind, id)])
        return found[0] if found else None


def _key(kind: str, id: str) -> str:
    """The id of a document, short enough for the cluster whatever its kind and id are."""
    return blake2b(f"{kind}\0{id}".encode(), digest_size=20).hexdigest()


def _document(hit: Json) -> Document:
    source = hit["_source"]
    return Document(source["kind"], source["id"], source["version"], source["body"])
