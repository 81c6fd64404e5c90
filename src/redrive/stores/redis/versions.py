"""The versions of letters' messages in one hash: facts and body of each are fields of their own (lua/letters.lua).

A version is written before the letter is swapped. Whoever loses the swap has written what is there already, since of
one number there is one version. Deleting a letter deletes its versions, in the same script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive.drivers.redis import Value
from redrive.model import Letter, LetterId, Revision, Version, version_of
from redrive.stores.redis.access import Access
from redrive.stores.versions import facts_of, version_in

if TYPE_CHECKING:
    from redrive.stores.redis.letters import RedisLetters


class RedisVersions:
    """Keeps the messages of letters as they were."""

    def __init__(self, access: Access, letters: RedisLetters) -> None:
        self._access = access
        self._letters = letters
        self._key = _key(access)

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        return await self._letters.edit(revisions)

    async def list(self, letter: LetterId) -> Sequence[Version]:
        found = await self._letters.reader.load([letter], documents=False)
        names = [_name(letter, number) for stored in found for number in range(stored.head.version)]
        kept = await self._access.command("HMGET", self._key, *names) if names else []
        return [version_in(facts) for facts in kept if facts is not None]

    async def get(self, letter: LetterId, number: int) -> Version | None:
        name = _name(letter, number)
        facts, body = await self._access.command("HMGET", self._key, name, name + b"/body")
        return None if facts is None or body is None else version_in(facts, body)

    async def keep(self, versions: Sequence[Version]) -> None:
        there = await self._letters.reader.load({version.letter for version in versions}, documents=False)
        known = {stored.id: stored.head.version for stored in there}
        for version in versions:
            if version.number < known.get(version.letter, 0):
                for name, value in _fields(version):
                    await self._access.command("HSETNX", self._key, name, value)


async def keep_versions(access: Access, letters: Sequence[Letter]) -> None:
    """Keep the messages of these letters as they are."""
    for letter in letters:
        fields = [part for pair in _fields(version_of(letter)) for part in pair]
        await access.command("HSET", _key(access), *fields)


def _fields(version: Version) -> list[tuple[Value, Value]]:
    name = _name(version.letter, version.number)
    return [(name + b"/body", version.body), (name, facts_of(version))]


def _name(letter: LetterId, number: int) -> bytes:
    return f"{letter}/{number}".encode("utf-8", "replace")


def _key(access: Access) -> str:
    return f"{access.letters}:versions"
