"""The versions of letters' messages, beside the small documents: the facts of each in one, its body in another.

A version is written before its letter is replaced. Whoever loses that race has written what is there already, since of
one number there is one version. The letter says how many it has, so all of them are found by their ids.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from redrive.model import LetterId, Revision, Version
from redrive.stores.opensearch.access import Access, Action, Json, Op
from redrive.stores.versions import facts_of, version_in

if TYPE_CHECKING:
    from redrive.stores.opensearch.letters import OpenSearchLetters

_KIND = "letter-version"


class KeptVersions:
    """Reads, writes and deletes versions."""

    def __init__(self, access: Access, index: str) -> None:
        self._access = access
        self._index = index

    async def write(self, versions: Sequence[Version]) -> None:
        """Keep versions, the body of each before its facts: one that has these is whole."""
        if versions:
            await self._access.write(self._index, [_put(version, "body", version.body) for version in versions])
            await self._access.write(self._index, [_put(version, "facts", facts_of(version)) for version in versions])

    async def facts(self, letter: LetterId, numbers: Sequence[int]) -> list[Version]:
        """The versions of these numbers that are kept, the oldest first, without bodies."""
        found = await self._access.read(self._index, [_key(letter, number, "facts") for number in numbers])
        return sorted([version_in(_data(hit)) for hit in found], key=lambda version: version.number)

    async def get(self, letter: LetterId, number: int) -> Version | None:
        keys = [_key(letter, number, part) for part in ("facts", "body")]
        found = {hit["_id"]: hit for hit in await self._access.read(self._index, keys)}
        return version_in(*(_data(found[key]) for key in keys)) if len(found) == len(keys) else None

    async def drop(self, letters: Mapping[LetterId, int]) -> None:
        """Delete the versions of letters that are gone, each with the number that it had."""
        gone = [(letter, number) for letter, newest in letters.items() for number in range(newest)]
        keys = [_key(letter, number, part) for letter, number in gone for part in ("facts", "body")]
        if keys:
            await self._access.write(self._index, [Action(Op.DELETE, key) for key in keys])


class OpenSearchVersions:
    """Keeps the messages of letters as they were."""

    def __init__(self, access: Access, index: str, letters: OpenSearchLetters) -> None:
        self._kept = KeptVersions(access, index)
        self._letters = letters

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        return await self._letters.edit(revisions)

    async def list(self, letter: LetterId) -> Sequence[Version]:
        return await self._kept.facts(letter, range(await self._letters.version_number(letter)))

    async def get(self, letter: LetterId, number: int) -> Version | None:
        return await self._kept.get(letter, number) if await self._letters.version_number(letter) > number else None

    async def keep(self, versions: Sequence[Version]) -> None:
        for version in versions:
            if await self._letters.version_number(version.letter) <= version.number:
                continue
            if not await self._kept.facts(version.letter, [version.number]):
                await self._kept.write([version])


def _put(version: Version, part: str, data: bytes) -> Action:
    named = {"kind": _KIND, "id": f"{version.letter}/{version.number}/{part}", "version": 1}
    source = msgspec.json.encode({**named, "body": {"data": b64encode(data).decode()}})
    return Action(Op.INDEX, _key(version.letter, version.number, part), source)


def _key(letter: LetterId, number: int, part: str) -> str:
    return blake2b(f"{_KIND}\0{letter}/{number}/{part}".encode(), digest_size=20).hexdigest()


def _data(hit: Json) -> bytes:
    return b64decode(hit["_source"]["body"]["data"])
