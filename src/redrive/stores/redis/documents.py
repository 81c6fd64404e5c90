"""Small JSON objects in a hash for each kind, beside a sorted set of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.stores.base import Document
from redrive.stores.redis.access import Access


class RedisDocuments:
    """Keeps small JSON objects."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        wanted = "" if expect is None else expect
        return bool(await self._access.run("put", self._keys(kind), (id, wanted, msgspec.json.encode(body))))

    async def get(self, kind: str, id: str) -> Document | None:
        text = await self._access.command("HGET", self._keys(kind)[0], id)
        return None if text is None else _document(kind, id, text)

    async def list(
        self, kind: str, *, limit: int = 1000, after: str | None = None, ascending: bool = False
    ) -> Sequence[Document]:
        bodies, ids = self._keys(kind)
        start = ("-" if ascending else "+") if after is None else b"(" + after.encode("utf-8", "surrogatepass")
        ends = (start, "+", "BYLEX") if ascending else (start, "-", "BYLEX", "REV")
        names = await self._access.command("ZRANGE", ids, *ends, "LIMIT", 0, limit)
        if not names:
            return []
        texts = await self._access.command("HMGET", bodies, *names)
        both = zip(names, texts, strict=True)
        return [_document(kind, name.decode(), text) for name, text in both if text is not None]

    async def delete(self, kind: str, id: str, *, expect: int | None = None) -> bool:
        return bool(await self._access.run("delete", self._keys(kind), (id, "" if expect is None else expect)))

    def _keys(self, kind: str) -> tuple[bytes, bytes]:
        return self._access.key("documents", kind), self._access.key("documents", kind, "ids")


def _document(kind: str, id: str, text: bytes) -> Document:
    version, _, body = text.partition(b" ")
    return Document(kind, id, int(version), msgspec.json.decode(body))
