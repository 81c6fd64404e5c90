"""Letters, ledger and documents in MongoDB: `mongodb://host/database?letters=collection`.

Nothing here needs a transaction, so a single mongod serves as well as a replica set.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redrive.errors import ConfigError, MissingExtra
from redrive.forensics.searchable import Searchable
from redrive.stores.base import StoreFeatures
from redrive.stores.shape import NATIVE, Shape

try:
    from pymongo import AsyncMongoClient, IndexModel
    from pymongo.errors import ConfigurationError, InvalidURI
except ImportError as error:  # pragma: no cover
    raise MissingExtra("a MongoDB store", "mongodb") from error

from redrive.stores.mongodb.access import Access
from redrive.stores.mongodb.documents import MongoDocuments
from redrive.stores.mongodb.ledger import MongoLedger
from redrive.stores.mongodb.letters import MongoLetters
from redrive.stores.mongodb.numbers import Numbers
from redrive.stores.mongodb.series import MongoSeries
from redrive.stores.mongodb.versions import MongoVersions

DATABASE, LETTERS = "redrive", "letters"
# not `timeoutMS`, beside which the driver ignores how long a server is looked for
_PATIENCE = {"serverSelectionTimeoutMS": "5000", "connectTimeoutMS": "5000", "socketTimeoutMS": "30000"}
"""What the driver waits for, unless the URL says otherwise: a worker would rather give a message back than wait."""


class MongoStore:
    """Every claim and move is atomic in its document, so any number of processes may share the collections."""

    features = StoreFeatures(durable=True, atomic_claims=True, shared=True, counted_groups=False, indexed_texts=True)

    def __init__(
        self,
        client: AsyncMongoClient[dict[str, Any]],
        *,
        database: str = DATABASE,
        letters: str = LETTERS,
        shape: Shape = NATIVE,
        indexes: Sequence[IndexModel] = (),
        owns_client: bool = False,
    ) -> None:
        """On a client that somebody else made, and closes; `letters` is the collection that holds them, and `indexes`
        are those of the shape's own fields."""
        access, numbers = Access(client, database, letters, indexes), Numbers()
        self.series = MongoSeries(access)
        self.letters = MongoLetters(access, shape, numbers, self.series)
        self.versions = MongoVersions(access, self.letters)
        self.ledger = MongoLedger(access, self.letters, numbers)
        self.documents = MongoDocuments(access)
        self._access = access
        self._owns_client = owns_client

    def search_as(self, searchable: Searchable) -> None:
        self.letters.texts.search_as(searchable)

    async def index_texts(self, most: int) -> int:
        return await self.letters.texts.index(most)

    async def check(self) -> None:
        """Check by writing: a read can succeed where a full disk, or a set without a primary, would not."""
        with self._access.translated_errors():
            await self._access.ready()
            await self._access.documents.delete_one({"_id": ""})

    async def aclose(self) -> None:
        if self._owns_client:
            await self._access.client.close()


def open_store(url: str, *, shape: Shape = NATIVE, indexes: Sequence[IndexModel] = ()) -> MongoStore:
    """`mongodb://[user:password@]host[,host]/database?letters=collection`, and every option of MongoDB's own."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    letters = next((value for name, value in given if name == "letters"), LETTERS)
    known = {name.lower() for name, _ in given}
    options = [(name, value) for name, value in given if name != "letters"]
    options += [(name, value) for name, value in _PATIENCE.items() if name.lower() not in known]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # an option that the driver does not know
            client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
                urlunsplit(parts._replace(path=parts.path or "/", query=urlencode(options)))
            )
    except (InvalidURI, ConfigurationError, ValueError, UserWarning) as error:
        raise ConfigError(f"no URL of a MongoDB store: {error}. Write it like mongodb://localhost/redrive") from error
    database = parts.path.strip("/") or DATABASE
    return MongoStore(client, database=database, letters=letters, shape=shape, indexes=indexes, owns_client=True)
