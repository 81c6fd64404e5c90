"""Whatever happens to letters, in whatever order, MongoDB answers as the reference does."""

from __future__ import annotations

from uuid import uuid4

from hypothesis.stateful import run_state_machine_as_test
from pymongo import MongoClient

from redrive.stores.base import Store
from redrive.stores.mongodb import open_store
from tests.properties.test_store_machine import SHORT, LetterMachine
from tests.servers.mongodb import MongoDB


def test_mongodb(mongodb_server: MongoDB) -> None:
    database = f"machine_{uuid4().hex[:8]}"

    class MongoMachine(LetterMachine):
        def open(self) -> Store:
            return open_store(f"{mongodb_server.url}{database}?letters=l{uuid4().hex[:12]}")

    try:
        run_state_machine_as_test(MongoMachine, settings=SHORT)
    finally:
        with MongoClient[dict[str, object]](mongodb_server.url) as client:
            client.drop_database(database)
