"""MongoDB keeps every promise of a store (the suite is redrive.testing.stores), in every shape."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from msgspec.structs import replace
from pymongo import MongoClient

from redrive.forensics.query import Query
from redrive.model import Letter, rejoined
from redrive.stores.base import Store
from redrive.stores.mongodb import open_store
from redrive.stores.shape import NATIVE, Shape
from redrive.testing.builders import make_failure
from redrive.testing.stores import LETTERS, StoreBackend, StoreSuite
from tests.conformance.test_stores import MailShape
from tests.servers.mongodb import MongoDB


class MongoBackend(StoreBackend):
    def __init__(self, server: MongoDB, shape: Shape) -> None:
        self.collection = f"letters_{uuid4().hex[:12]}"
        address, _, options = server.url.partition("/?")
        self.url = f"{address.rstrip('/')}/conformance?letters={self.collection}&{options}".rstrip("&")
        self.shape = shape

    async def open(self) -> Store:
        return open_store(self.url, shape=self.shape)


@pytest.fixture(scope="module", autouse=True)
def _database(mongodb_server: MongoDB) -> Iterator[None]:
    yield
    with MongoClient[dict[str, object]](mongodb_server.url) as client:
        client.drop_database("conformance")


class TestMongoDB(StoreSuite):
    @pytest.fixture
    def backend(self, mongodb_server: MongoDB) -> StoreBackend:
        return MongoBackend(mongodb_server, NATIVE)


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS.keys())
async def test_a_letter_in_another_shape(mongodb_server: MongoDB, letter: Letter) -> None:
    store = await MongoBackend(mongodb_server, MailShape()).open()
    await store.letters.record([letter])
    assert await store.letters.get(letter.id) == letter
    again = replace(letter, failures=(make_failure(attempt=9),))
    await store.letters.record([again])
    got = await store.letters.get(letter.id)
    assert got == rejoined(letter, again)
    assert (await store.letters.search(Query(states=(letter.state,)))).letters == (got,)
    await store.aclose()
