"""The versions of letters' messages in a collection of their own; a body that is too large for a document is in pieces.

    _id      LETTER/NUMBER, and LETTER/NUMBER/PIECE for the pieces behind the first
    facts    msgpack: who, when, why, the headers
    data     the body, or its first piece

A version is kept before its letter is replaced. Whoever loses that race has written what is there already, since of one
number there is one version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bson.binary import Binary

from redrive.model import LetterId, Revision, Version
from redrive.stores.mongodb.access import Access, Fields
from redrive.stores.mongodb.bodies import LARGEST
from redrive.stores.versions import facts_of, version_in

if TYPE_CHECKING:
    from redrive.stores.mongodb.letters import MongoLetters


class MongoVersions:
    """Keeps the messages of letters as they were."""

    def __init__(self, access: Access, letters: MongoLetters) -> None:
        self._access = access
        self._letters = letters

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        return await self._letters.edit(revisions)

    async def list(self, letter: LetterId) -> Sequence[Version]:
        named = {"letter": letter, "facts": {"$exists": True}}
        with self._access.translated_errors():
            found = await self._access.versions.find(named, {"facts": 1}).to_list()
        return sorted([version_in(document["facts"]) for document in found], key=lambda version: version.number)

    async def get(self, letter: LetterId, number: int) -> Version | None:
        name = _name(letter, number)
        with self._access.translated_errors():
            first = await self._access.versions.find_one({"_id": name})
            if first is None:
                return None
            names = [f"{name}/{piece}" for piece in range(1, first["pieces"])]
            found = {rest["_id"]: rest["data"] async for rest in self._access.versions.find({"_id": {"$in": names}})}
        return version_in(first["facts"], b"".join([first["data"], *(found[name] for name in names)]))

    async def keep(self, versions: Sequence[Version]) -> None:
        with self._access.translated_errors():
            for version in versions:
                kept, letter = {"_id": _name(version.letter, version.number)}, {"_id": version.letter}
                is_kept = await self._access.versions.find_one(kept, {"_id": 1}) is not None
                if not is_kept and await self._access.letters.find_one(letter, {"_id": 1}):
                    await keep_version(self._access, version)


async def keep_version(access: Access, version: Version) -> None:
    """Keep a version: the facts last, so that one that has them is whole."""
    name, body = _name(version.letter, version.number), version.body
    pieces = [body[start : start + LARGEST] for start in range(0, len(body), LARGEST)] or [b""]
    documents: list[Fields] = [
        {"_id": f"{name}/{number}", "letter": version.letter, "data": Binary(piece)}
        for number, piece in enumerate(pieces)
    ]
    documents[0] |= {"_id": name, "facts": Binary(facts_of(version)), "pieces": len(pieces)}
    for document in reversed(documents):
        await access.versions.replace_one({"_id": document["_id"]}, document, upsert=True)


async def drop_versions(access: Access, letters: Sequence[LetterId]) -> None:
    """Delete the versions of letters that are gone."""
    if letters:
        await access.versions.delete_many({"letter": {"$in": list(letters)}})


def _name(letter: LetterId, number: int) -> str:
    return f"{letter}/{number}"
