"""The indexes and their fields. We make them; what is there already has to be as we need it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from redrive.errors import ConfigError, StoreUnavailable
from redrive.stores.opensearch.access import Access, Json
from redrive.stores.shape import Shape

_KEYWORD: Json = {"type": "keyword"}
_LONG: Json = {"type": "long"}
_UNSEARCHED: Json = {"type": "object", "enabled": False}
_KEPT: Json = {"type": "keyword", "index": False, "doc_values": False}
LETTER: Json = {
    # the names are those of redrive.model; times are microseconds since 1970
    **dict.fromkeys(
        ("id", "state", "category", "source", "group", "transport", "tenant", "reason", "replay", "owner"), _KEYWORD
    ),
    **dict.fromkeys(("message_id", "error_type", "code", "depends_on"), _KEYWORD),
    **dict.fromkeys(("created_at", "updated_at", "next_retry_at", "expires_at", "lease_until"), _LONG),
    **dict.fromkeys(("first_at", "last_at"), _LONG),  # of its failures
    **dict.fromkeys(("priority", "arrival", "version"), _LONG),
    **dict.fromkeys(("error_message", "first_version", "last_version"), _KEPT),  # for groups, which show one
    "shown": {"type": "binary", "doc_values": True},  # what Query.text looks into, see texts.py
    "pieces": {"type": "keyword", "doc_values": False},
    "shown_by": _KEYWORD,
    "shape": _UNSEARCHED,  # what the shape itself keeps under `redrive`
}
LINE: Json = {
    **dict.fromkeys(("replay", "freeze", "letter", "status"), _KEYWORD),
    **dict.fromkeys(("number", "at"), _LONG),
    "note": _KEPT,
}
_HOLDS: dict[str, frozenset[str]] = {
    # what a field of a shape may be in an index that others made, by hand or by its first document
    "keyword": frozenset({"keyword", "text", "wildcard", "match_only_text"}),
    "text": frozenset({"text", "keyword", "wildcard", "match_only_text"}),
    "integer": frozenset({"integer", "long", "double", "float", "unsigned_long", "keyword", "text"}),
    "date": frozenset({"date", "date_nanos", "keyword", "text"}),
    "object": frozenset({"object", "object (not searched)", "flat_object", "nested"}),
    "object (not searched)": frozenset({"object", "object (not searched)", "flat_object", "nested"}),
}
BUCKET: Json = {
    **dict.fromkeys(("kind", "batch", "group", "source", "category", "outcome"), _KEYWORD),
    **dict.fromkeys(("step", "at", "count"), _LONG),
    "counts": _KEPT,  # of a batch that is not summed up yet
}
DOCUMENT: Json = {**dict.fromkeys(("kind", "id"), _KEYWORD), "version": _LONG, "body": _UNSEARCHED}


class Schema:
    """The indexes of a store, made and looked at once, when they are first needed."""

    def __init__(self, access: Access, index: str, shape: Shape, shards: int, replicas: int | None) -> None:
        self.letters = index
        self.ledger = f"{index}-ledger"
        self.documents = f"{index}-documents"
        self.series = f"{index}-series"
        self.all = (self.letters, self.ledger, self.documents, self.series)
        self._access = access
        copies: Json = {"auto_expand_replicas": "0-1"} if replicas is None else {"number_of_replicas": replicas}
        self._settings: Json = {"number_of_shards": shards, **copies}
        self._wanted: dict[str, Json] = {
            self.letters: {**getattr(shape, "mapping", {}), "redrive": {"properties": LETTER}},
            self.ledger: LINE,
            self.documents: DOCUMENT,
            self.series: BUCKET,
        }
        self._options: dict[str, Json] = {self.letters: getattr(shape, "mapping_options", {})}
        self._lock = asyncio.Lock()
        self._ready = False
        access.when_gone = self._forget

    async def ready(self) -> None:
        """Make missing indexes, after all that exist are known to be right."""
        if self._ready:
            return
        async with self._lock:
            if not self._ready:
                found = await self._found()
                for index, fields in found.items():
                    require(index, self._wanted[index], fields)
                for index, wanted in self._wanted.items():
                    await self._make(index, wanted, found.get(index))
                await self._until_served()
                self._ready = True

    def _forget(self) -> None:
        """Forget that the indexes are there: somebody deleted one, so it is made again before the next use."""
        self._ready = False

    async def exists(self) -> bool:
        """Whether they are all there; ConfigError if one is wrong. Makes nothing."""
        found = await self._found()
        for index, fields in found.items():
            require(index, self._wanted[index], fields)
        return len(found) == len(self._wanted)

    async def _found(self) -> dict[str, Json]:
        """The fields of those indexes that exist, by the name we ask for: an alias answers with another."""
        found = {}
        for index in self._wanted:
            answer = await self._access.request("GET", f"/{index}/_mapping", missing={})
            mappings = [described["mappings"] for described in answer.values()]
            if len(mappings) > 1:
                raise ConfigError(f"{index!r} is an alias of {len(mappings)} indexes: name one that can be written to")
            if mappings:
                found[index] = mappings[0].get("properties", {})
        return found

    async def _make(self, index: str, wanted: Json, found: Json | None) -> None:
        if found is None:
            mapping = {"dynamic": False, **self._options.get(index, {}), "properties": wanted}
            try:
                await self._access.request("PUT", f"/{index}", {"settings": self._settings, "mappings": mapping})
            except StoreUnavailable:  # somebody else may just have made it
                fields = (await self._found()).get(index)
                if fields is None:
                    raise
                require(index, wanted, fields)
        elif lacking := dict(_lacking(wanted, found)):
            mapping = {"dynamic": False, "properties": lacking}
            await self._access.request("PUT", f"/{index}/_mapping", mapping)

    async def _until_served(self) -> None:
        """Wait until indexes that another process has just made answer. A search needs no right that we lack."""
        await self._access.search(",".join(self.all), {"size": 0, "track_total_hits": False})


def require(index: str, wanted: Json, found: Json) -> None:
    """Raise ConfigError if a field is there with another type."""
    for name, type_wanted, type_found in _clashes(wanted, found):
        raise ConfigError(
            f"index {index!r} has the field {name} as {type_found}, and Redrive needs {type_wanted}: nothing was "
            f"written. Name another index at the end of the store's URL, or reindex this one with that mapping"
        )


def _clashes(wanted: Json, found: Json, path: str = "") -> Iterator[tuple[str, str, str]]:
    for name, field in wanted.items():
        if name not in found:
            continue
        kind, other = _kind(field), _kind(found[name])
        if kind != other and not (_is_shown(f"{path}{name}") and other in _HOLDS.get(kind, ())):
            yield f"{path}{name}", kind, other
        else:
            yield from _clashes(field.get("properties", {}), found[name].get("properties", {}), f"{path}{name}.")


def _is_shown(path: str) -> bool:
    """Whether a field is for people, who search it as they made it; what Redrive itself searches is under `redrive`."""
    return not path.startswith("redrive")


def _kind(field: Json) -> str:
    kind = str(field.get("type", "object"))
    return f"{kind} (not searched)" if field.get("enabled") is False else kind


def _lacking(wanted: Json, found: Json) -> Iterator[tuple[str, Any]]:
    for name, field in wanted.items():
        known = found.get(name)
        if known is None:
            yield name, field
        elif field.get("dynamic") is not None and _kind(known) == "object" and "dynamic" not in known:
            yield name, {"type": "object", "dynamic": field["dynamic"]}  # or it would be as the index is from now on
        elif field.get("fields", {}).keys() - known.get("fields", {}).keys():
            yield name, {**known, "fields": {**field["fields"], **known.get("fields", {})}}
        elif rest := dict(_lacking(field.get("properties", {}), known.get("properties", {}))):
            yield name, {"properties": rest}
