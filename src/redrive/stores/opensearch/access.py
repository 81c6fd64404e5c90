"""The cluster as a store sees it: requests with translated errors, bulk writes, pages of hits."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from redrive.clock import Clock, Pause
from redrive.errors import RedriveError, StoreUnavailable

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch

NAME = "opensearch"
log = logging.getLogger("redrive")
OK, UNFIT, MISSING, CONFLICT, BUSY = range(200, 300), 400, 404, 409, 429
_UNTIL_SERVED = (0.05, 1.0)  # seconds: the first pause and the longest, while no node serves a part of the index
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # seconds, while the cluster says that it is too busy
_MOST_ACTIONS, _MOST_BYTES = 1000, 1_000_000  # of one request: aiohttp sends no more than that in one piece
_SNAPSHOT_LIFE = "2m"  # of a point in time, from one page to the next
_WRITTEN = {"filter_path": "items.*.status,items.*.error.type,items.*.error.reason"}

_HALF = "a part of the index does not answer: GET /_cluster/health says which"
_UNSERVED = "no node serves {} yet: GET /_cluster/allocation/explain says why"
_UNSERVED_TYPES = frozenset(
    {"no_shard_available_action_exception", "unavailable_shards_exception", "primary_missing_action_exception"}
)
_NO_OPENSEARCH = "what answers there is not OpenSearch: look at host and port of its URL"

Json = dict[str, Any]
Version = tuple[int, int]
"""Sequence number and primary term: what a compare-and-set write is guarded by."""


class Refused(RedriveError, ValueError):
    """The cluster refuses a document as it is, now and later."""


class IndexIsGone(StoreUnavailable):
    """The index was deleted by somebody else."""


class Op(StrEnum):
    """What a line of a bulk request does."""

    CREATE = "create"  # only if there is none
    INDEX = "index"  # over what was read
    UPDATE = "update"  # these fields of it
    DELETE = "delete"


class Action(Struct, frozen=True, gc=False):
    """One write. With a version, only if the document is still what it was."""

    op: Op
    id: str
    source: bytes | None = None
    version: Version | None = None
    simpler: tuple[Callable[[], bytes], ...] = ()  # other sources, for a cluster that refuses the first

    def lines(self, source: bytes | None = None) -> bytes:
        head: Json = {"_id": self.id}
        if self.version is not None:
            head["if_seq_no"], head["if_primary_term"] = self.version
        line = msgspec.json.encode({self.op.value: head})
        content = self.source if source is None else source
        return line + b"\n" if content is None else b"%b\n%b\n" % (line, content)


class Access:
    """Every request of a store goes through here."""

    def __init__(self, client: AsyncOpenSearch, clock: Clock, timeout: timedelta) -> None:
        self._client = client
        self._clock = clock
        self._patience = timeout.total_seconds()  # with an index that is there, and not served yet
        self._closed = False
        self.when_gone: Callable[[], None] = lambda: None  # called when an index was deleted under us

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        missing: Any = None,
        is_served: Callable[[Json], bool] = lambda answer: True,
    ) -> Any:
        """The answer to a request. For what is not there (404) it is `missing`, if that is given.

        What no node serves yet is asked for again until one does, within the store's `timeout`: an index that somebody
        has just made, or that a node is about to take over, is no outage. `is_served` says it of an answer.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        ends, pauses = self._clock.elapsed() + self._patience, Pause(*_UNTIL_SERVED)
        while True:
            try:
                answer = await self._answer(
                    method, path, data, dict(params or {}), () if missing is None else (MISSING,)
                )
                if is_served(answer):
                    return missing if missing is not None and answer.get("status") == MISSING else answer
                raise _NotServed(NAME, _UNSERVED.format("a part of the index"))
            except _NotServed:
                if self._clock.elapsed() >= ends:
                    raise
            await self._clock.sleep(pauses.next())

    async def _answer(self, method: str, path: str, body: bytes | None, params: Json, ignore: Sequence[int]) -> Json:
        from opensearchpy.exceptions import OpenSearchException, TransportError

        if self._closed:
            raise StoreUnavailable(NAME, "the store is closed")
        try:
            answer = await self._client.transport.perform_request(
                method, path, params=params, body=body, ignore=ignore
            )  # fmt: skip
        except TransportError as error:
            raise self._noted(_translated(error)) from error
        except OpenSearchException as error:
            raise StoreUnavailable(NAME, _NO_OPENSEARCH) from error
        if not isinstance(answer, dict):
            raise StoreUnavailable(NAME, _NO_OPENSEARCH)
        return answer

    async def refresh(self, index: str) -> None:
        """Make searches find all that was written until now."""
        answer = await self.request("POST", f"/{index}/_refresh")
        if answer["_shards"]["failed"]:
            raise StoreUnavailable(NAME, _HALF)

    async def read(self, index: str, ids: Sequence[str]) -> list[Json]:
        """The documents that exist, as they are now: reading by id needs no refresh."""
        wanted = [id for id in ids if id]
        if not wanted:
            return []
        docs = (await self.request("POST", f"/{index}/_mget", {"ids": wanted}, is_served=_all_read))["docs"]
        for document in docs:
            if "error" in document:
                raise self._noted(_of_reading(document["error"]))
        return [document for document in docs if document["found"]]

    async def write(self, index: str, actions: Sequence[Action]) -> list[int]:
        """Write all; returns the status of each: done, CONFLICT or MISSING. Errors are raised when all were tried."""
        items: list[Json] = []
        for some in _chunks(actions):
            items += await self._write(index, some)
        for action, item in zip(actions, items, strict=True):
            if item["status"] == UNFIT and action.simpler:
                item.update(await self._simpler(index, action, item))
        errors = [item for item in items if item["status"] not in OK and item["status"] not in (CONFLICT, MISSING)]
        if errors:
            raise _error_of(errors, len(actions))
        return [item["status"] for item in items]

    async def _simpler(self, index: str, action: Action, refused: Json) -> Json:
        """Write it in a form that the cluster may take: a field of the index may be of another type than its value."""
        log.warning("OpenSearch refuses %s as it is: %s; it is kept in a simpler form", action.id, _why(refused))
        for make in action.simpler:
            [item] = await self._write(index, [action.lines(make())])
            if item["status"] != UNFIT:
                return {"error": None, **item}
        return refused

    async def _write(self, index: str, lines: Sequence[bytes]) -> list[Json]:
        """Write in one request, and again what the cluster was too busy for. Each item was done or not, never half."""
        items: list[Json] = [{"status": BUSY}] * len(lines)
        for pause in (*_PAUSES, None):
            left = [place for place, item in enumerate(items) if item["status"] == BUSY]
            for place, item in zip(left, await self._bulk(index, [lines[n] for n in left]), strict=True):
                items[place] = item
            if pause is None or not any(item["status"] == BUSY for item in items):
                break
            await self._clock.sleep(pause * self._clock.rng.uniform(0.5, 1.0))
        return items

    async def _bulk(self, index: str, lines: Sequence[bytes]) -> list[Json]:
        try:
            answer = await self.request("POST", f"/{index}/_bulk", b"".join(lines), params=_WRITTEN)
        except _Busy as error:
            return [{"status": BUSY, "error": {"reason": error.why}}] * len(lines)
        return [item for wrapped in answer["items"] for item in wrapped.values()]

    async def search(self, index: str | None, body: Json) -> Json:
        """Search an index as it stands (refresh it first to find what was just written), or else a snapshot."""
        path = "/_search" if index is None else f"/{index}/_search"
        answer: Json = await self.request("POST", path, body, is_served=_all_asked)
        if answer["timed_out"] or answer["_shards"]["failed"]:
            raise StoreUnavailable(NAME, _HALF)
        return answer

    async def count(self, index: str, query: Json) -> int:
        """How many documents the query finds, in all shards."""
        answer = await self.request("POST", f"/{index}/_count", {"query": query}, is_served=_all_asked)
        if answer["_shards"]["failed"]:
            raise StoreUnavailable(NAME, _HALF)
        return int(answer["count"])

    async def pages(
        self, index: str | None, body: Json, *, size: int, limit: int | None = None, after: Sequence[Any] | None = None
    ) -> AsyncIterator[list[Json]]:
        """All hits in the body's order, page by page."""
        left = limit
        while left is None or left > 0:
            wanted = size if left is None else min(size, left)
            place = {} if after is None else {"search_after": after}
            answer = await self.search(index, {**body, **place, "size": wanted, "track_total_hits": False})
            hits = answer["hits"]["hits"]
            if hits:
                yield hits
            if len(hits) < wanted:
                return
            after = hits[-1]["sort"]
            left = None if left is None else left - len(hits)

    @asynccontextmanager
    async def snapshot(self, index: str) -> AsyncIterator[Json]:
        """Freeze the index as it is now, for a search to read; gives the part of the search's body that names it."""
        path = f"/{index}/_search/point_in_time"
        life = {"keep_alive": _SNAPSHOT_LIFE}
        id = (await self.request("POST", path, params=life, is_served=_all_asked))["pit_id"]
        try:
            yield {"pit": {"id": id, "keep_alive": _SNAPSHOT_LIFE}}
        finally:
            await self.request("DELETE", "/_search/point_in_time", {"pit_id": [id]}, missing={})

    async def try_to_write(self, index: str) -> None:
        """Change a document that does not exist: that is refused where a write would be, and changes nothing."""
        line = b'{"update":{"_id":"nobody"}}\n{"doc":{}}\n'
        [item] = await self._write(index, [line])
        if item["status"] != MISSING:
            raise _error_of([item], 1)

    def _noted(self, error: RedriveError) -> RedriveError:
        if isinstance(error, IndexIsGone):
            self.when_gone()
        return error

    async def aclose(self, *, close_client: bool) -> None:
        if not self._closed:
            self._closed = True
            if close_client:
                await self._client.close()


class _Busy(StoreUnavailable):
    """The cluster is too busy now, and would take it a moment later."""


class _NotServed(StoreUnavailable):
    """The index is there, and no node serves a part of it: it was just made, or its node has just gone."""


def _all_read(answer: Json) -> bool:
    """Whether every document of an `_mget` was looked for."""
    return not any(document.get("error", {}).get("type") in _UNSERVED_TYPES for document in answer["docs"])


def _all_asked(answer: Json) -> bool:
    """Whether every shard answered, well or not: one without a node is not counted as failed, and is not searched."""
    shards = answer["_shards"]
    return bool(shards["successful"] + shards["failed"] >= shards["total"])


def _chunks(actions: Sequence[Action]) -> Iterator[list[bytes]]:
    """Lines in as many requests as they need; a line that is too large goes alone."""
    some: list[bytes] = []
    size = 0
    for action in actions:
        lines = action.lines()
        if some and (len(some) == _MOST_ACTIONS or size + len(lines) > _MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(lines)
        size += len(lines)
    if some:
        yield some


def _error_of(items: Sequence[Json], total: int) -> RedriveError:
    """The error of failed writes: Refused where a document will never be taken, StoreUnavailable otherwise."""
    ours = [item for item in items if item["status"] in (400, 413)]
    worst = next((item for item in items if item not in ours), items[0])
    why = f"{_why(worst)} (status {worst['status']})"
    if len(ours) == len(items):
        return Refused(f"OpenSearch refuses {len(items)} of {total} documents: {why}")
    return StoreUnavailable(NAME, f"it did not take {len(items)} of {total} documents: {why}")


def _why(item: Json) -> str:
    error = item.get("error") or {}
    return str(error.get("reason") or error.get("type") or "no reason given")


def _of_reading(error: Json) -> StoreUnavailable:
    kind = IndexIsGone if error.get("type") == "index_not_found_exception" else StoreUnavailable
    return kind(NAME, str(error.get("reason")))


def _translated(error: Any) -> RedriveError:
    from opensearchpy.exceptions import ConnectionError, ConnectionTimeout

    if isinstance(error, ConnectionTimeout):
        return StoreUnavailable(NAME, "no answer in time (`timeout` of its URL)")
    if isinstance(error, ConnectionError):
        return StoreUnavailable(NAME, f"it cannot be reached: {error.error}")
    reason = _reason(error.info) or error.error
    match error.status_code:
        case 401:
            return StoreUnavailable(NAME, "it refuses the user and password of its URL")
        case 404 if "index_not_found" in str(error.error):
            return IndexIsGone(NAME, reason)
        case 413:
            return Refused("OpenSearch takes no request of that size: raise its http.max_content_length")
        case 503 if _is_unserved(error.info):
            return _NotServed(NAME, _UNSERVED.format("the index"))
        case 429:
            return _Busy(NAME, f"it is too busy: {reason}")
    return StoreUnavailable(NAME, f"it answers {error.status_code}: {reason}")


def _is_unserved(info: Any) -> bool:
    """Whether a 503 speaks of shards without a node, and of nothing else; a search of such a one has no cause."""
    error = info.get("error") if isinstance(info, dict) else None
    if not isinstance(error, dict):
        return False
    if error.get("type") != "search_phase_execution_exception":
        return error.get("type") in _UNSERVED_TYPES
    return all(shard.get("reason", {}).get("type") in _UNSERVED_TYPES for shard in error.get("failed_shards") or ())


def _reason(info: Any) -> str:
    """The reason that the cluster gives, the cause first."""
    error = info.get("error") if isinstance(info, dict) else None
    if not isinstance(error, dict):
        return str(error or "")
    causes = [cause.get("reason") for cause in error.get("root_cause") or ()]
    return str(next(filter(None, [*causes, error.get("reason")]), ""))
