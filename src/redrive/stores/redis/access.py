"""The Redis of a store: its keys, its scripts, and the check that it is fit to keep letters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redrive.drivers.redis import Command, Link, Script, Value
from redrive.errors import ConfigError, StoreUnavailable

_FLAGS = {
    "load": "no-writes",
    "page": "no-writes",
    "lines": "no-writes",
    "record": "",  # refused when memory is full: the message stays with its transport
    "swap": "allow-oom",  # what resolves or deletes letters makes room
    "mark": "allow-oom",
    "seal": "allow-oom",
    "put": "",
    "delete": "allow-oom",
    "roll_up": "allow-oom",
    "series": "no-writes",
    "prune_series": "allow-oom",
}
_FILES = {"record": "swap"}
_ON_LETTERS = ("load", "page", "record", "swap")


@cache
def script(name: str) -> Script:
    """The script of that name, with its flags and what scripts on letters share."""
    flags = f" flags={_FLAGS[name]}" if _FLAGS[name] else ""
    text = f"#!lua{flags}\n" + (_text("letters") if name in _ON_LETTERS else "") + _text(_FILES.get(name, name))
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _text(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


class Access:
    """Runs scripts and commands on the keys of one store.

    All keys have one hash tag, so on a cluster a store lies on one node, and every step is atomic.
    """

    def __init__(self, link: Link, entries: str | None = None, names: str | None = None) -> None:
        self._link = link
        self._tag = "{" + (entries or link.address.prefix) + "}"
        self._entries = entries
        self._names = names
        self._is_ready = False
        self.letters = f"{self._tag}:letters"

    def key(self, *parts: str) -> bytes:
        return ":".join((self._tag, *parts)).encode("utf-8", "surrogatepass")

    async def on_letters(self, name: str, *arguments: Value) -> Any:
        keys = [key for key in (self.letters, self._entries, self._names) if key is not None]
        await self.ready()
        return await self._link.run(script(name), keys, arguments)

    async def run(self, name: str, keys: Sequence[Value], arguments: Sequence[Value]) -> Any:
        await self.ready()
        return await self._link.run(script(name), keys, arguments)

    async def command(self, *command: Value) -> Any:
        await self.ready()
        return await self._link.command(*command)

    async def commands(self, commands: Sequence[Command]) -> list[Any]:
        await self.ready()
        return await self._link.commands(commands)

    async def sizes(self) -> list[int]:
        """How many letters there are, how many entries, and how many of these lie beside their sorted set."""
        keys = (f"{self.letters}:heads", self._entries or "", f"{self.letters}:aside")
        return await self.commands(list(zip(("HLEN", "ZCARD", "HLEN"), keys, strict=True)))

    async def ready(self) -> None:
        """Refuse, at first use, a Redis that could lose letters, and a store whose entries we would not keep."""
        await self._link.trust()
        if self._is_ready:
            return
        about, ours = self.key("about"), (self._entries or "").encode()
        theirs = await self._link.command("HGET", about, "entries")
        if theirs is None and not await self._link.command("HSETNX", about, "entries", ours):
            theirs = await self._link.command("HGET", about, "entries")
        if theirs not in (None, ours):
            raise ConfigError(_other_entries(self._tag, theirs.decode(), self._entries))
        self._is_ready = True

    async def check(self) -> None:
        """Check by writing: a Redis without memory, or a replica, still answers reads."""
        await self.command("HSET", self.key("about"), "checked", "1")

    async def aclose(self) -> None:
        await self._link.aclose()


def _other_entries(tag: str, theirs: str, ours: str | None) -> str:
    kept = f"keeps its entries at {theirs!r}" if theirs else "keeps no entries"
    wanted = f"entries={ours!r}" if ours else "none"
    return f"the store {tag} {kept}, and was opened with {wanted}: open it as whoever made it does"


def open_link(url: str) -> Link:
    return Link(url, unavailable=StoreUnavailable)
