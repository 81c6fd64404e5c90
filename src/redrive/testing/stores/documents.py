"""Small documents beside the letters."""

from __future__ import annotations

import asyncio
from typing import Any

from redrive.stores.base import Store
from redrive.testing.stores.backend import StoreBackend


class Documents:
    """Each is kept as it is, and written only over the version that was read."""

    async def test_a_document_is_kept_as_it_is(self, store: Store) -> None:
        body: dict[str, Any] = {"ä": [1, 2.5, None, True, {"deep": "🗝"}], "": "", "big": 2**53}
        assert await store.documents.get("kind", "id") is None
        assert await store.documents.put("kind", "id", body)
        got = await store.documents.get("kind", "id")
        assert got is not None
        assert (got.kind, got.id, got.version, got.body) == ("kind", "id", 1, body)
        assert await store.documents.get("other kind", "id") is None

    async def test_what_is_written_is_a_copy(self, store: Store) -> None:
        body: dict[str, Any] = {"list": [1]}
        await store.documents.put("kind", "id", body)
        body["list"].append(2)
        got = await store.documents.get("kind", "id")
        assert got is not None
        got.body["list"].append(3)
        again = await store.documents.get("kind", "id")
        assert again is not None
        assert again.body == {"list": [1]}

    async def test_a_document_is_written_only_over_the_version_that_was_read(self, store: Store) -> None:
        put = store.documents.put
        assert not await put("k", "id", {"n": 0}, expect=1)
        assert await put("k", "id", {"n": 1}, expect=0)
        assert not await put("k", "id", {"n": 2}, expect=0)
        assert await put("k", "id", {"n": 3}, expect=1)
        assert await put("k", "id", {"n": 4})
        got = await store.documents.get("k", "id")
        assert got is not None
        assert (got.version, got.body) == (3, {"n": 4})

    async def test_compare_and_set_loses_no_update(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open() if store.features.shared else store
        await store.documents.put("k", "counter", {"n": 0})

        async def add(through: Store) -> None:
            while True:
                document = await through.documents.get("k", "counter")
                assert document is not None
                body = {"n": document.body["n"] + 1}
                if await through.documents.put("k", "counter", body, expect=document.version):
                    return

        await asyncio.gather(*(add((store, other)[n % 2]) for n in range(30)))
        got = await store.documents.get("k", "counter")
        if other is not store:
            await other.aclose()
        assert got is not None
        assert (got.body, got.version) == ({"n": 30}, 31)

    async def test_documents_are_listed_the_latest_id_first(self, store: Store) -> None:
        for id in ("b", "d", "a", "c"):
            await store.documents.put("k", id, {"id": id})
        await store.documents.put("other", "z", {})
        assert [document.id for document in await store.documents.list("k")] == ["d", "c", "b", "a"]
        assert [document.body for document in await store.documents.list("k", limit=2)] == [{"id": "d"}, {"id": "c"}]
        assert await store.documents.list("nothing") == []

    async def test_documents_are_listed_page_by_page_both_ways(self, store: Store) -> None:
        for id in ("b", "d", "a", "c"):
            await store.documents.put("k", id, {})
        await store.documents.put("j", "zz", {})
        await store.documents.put("l", "0", {})

        async def ids(**asked: Any) -> list[str]:
            return [document.id for document in await store.documents.list("k", **asked)]

        assert await ids(ascending=True) == ["a", "b", "c", "d"]
        assert await ids(ascending=True, after="b", limit=1) == ["c"]
        assert await ids(ascending=True, after="d") == []
        assert await ids(after="c") == ["b", "a"]
        assert await ids(after="a") == []

    async def test_a_document_is_deleted_once(self, store: Store) -> None:
        await store.documents.put("k", "id", {})
        assert await store.documents.delete("k", "id")
        assert not await store.documents.delete("k", "id")
        assert await store.documents.put("k", "id", {"new": True}, expect=0)

    async def test_a_document_is_deleted_only_in_the_version_that_was_read(self, store: Store) -> None:
        documents = store.documents
        assert not await documents.delete("k", "id", expect=1)
        await documents.put("k", "id", {"n": 1})
        await documents.put("k", "id", {"n": 2})
        assert not await documents.delete("k", "id", expect=1)
        assert await documents.get("k", "id") is not None
        assert await documents.delete("k", "id", expect=2)
        assert await documents.get("k", "id") is None
        assert await documents.list("k") == []
