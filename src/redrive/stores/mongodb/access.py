"""A MongoDB database as the store sees it: its collections, and its errors as StoreUnavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, IndexModel, WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import InvalidName, PyMongoError

from redrive.errors import ConfigError, StoreUnavailable
from redrive.stores.mongodb.schema import INDEXES

Fields: TypeAlias = dict[str, Any]
Collection: TypeAlias = AsyncCollection[Fields]

_DURABLE = WriteConcern(w="majority", j=True)
_PLAIN = CodecOptions[Fields](uuid_representation=UuidRepresentation.STANDARD)


class Access:
    """The collections of one store, with their indexes, made when the first of them is used."""

    def __init__(
        self, client: AsyncMongoClient[Fields], database: str, letters: str, indexes: Sequence[IndexModel] = ()
    ) -> None:
        self.client = client
        self.name = f"MongoDB ({database}.{letters})"
        try:
            place = client.get_database(database, codec_options=_PLAIN, write_concern=_DURABLE)
            self.letters: Collection = place[letters]
            self.bodies: Collection = place[f"{letters}_bodies"]
            self.versions: Collection = place[f"{letters}_versions"]
            self.ledger: Collection = place[f"{letters}_ledger"]
            self.replays: Collection = place[f"{letters}_replays"]
            self.documents: Collection = place[f"{letters}_documents"]
            self.counted: Collection = place[f"{letters}_counted"]
            self.texts: Collection = place[f"{letters}_texts"]
            self.series: Collection = place[f"{letters}_series"]
        except InvalidName as error:
            raise ConfigError(f"MongoDB takes no such name of a database or collection: {error}") from error
        self._indexes = {**INDEXES, "letters": [*INDEXES["letters"], *indexes]}
        self._made = False
        self._making = asyncio.Lock()

    async def ready(self) -> None:
        """Make the indexes that are missing, once."""
        if self._made:
            return
        async with self._making:
            if not self._made:
                for name, indexes in self._indexes.items():
                    collection: Collection = getattr(self, name)
                    await collection.create_indexes(indexes)
                self._made = True

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise StoreUnavailable for every error of MongoDB's driver."""
        try:
            yield
        except PyMongoError as error:
            raise StoreUnavailable(self.name, _why(error)) from error


def _why(error: PyMongoError) -> str:
    """The reason in one line: a driver's error may hold the whole topology, and a bulk's every document."""
    details = getattr(error, "details", None)
    if isinstance(details, Mapping):
        problems = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
        if problems:
            return f"{problems[0].get('errmsg', error)}, and {len(problems) - 1} more"
    return str(error).partition(", Topology Description")[0]
