"""Letters as documents of an index: every write is compare-and-set, every search sees what was written before it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from redrive.clock import moment
from redrive.forensics.query import Query
from redrive.forensics.series import buried, resolved
from redrive.model import (
    UNRESOLVED,
    Category,
    Letter,
    LetterId,
    Owner,
    Revision,
    State,
    claimed,
    edited,
    is_anothers,
    moved,
    rejoined,
    set_apart,
    version_of,
)
from redrive.stores.base import AT_REST, REPLAYABLE, Cursor, Group, GroupOrder, Hit, Page, Tally, hit_of
from redrive.stores.opensearch.access import CONFLICT, OK, Access, Action, Json, Op
from redrive.stores.opensearch.arrivals import Arrivals
from redrive.stores.opensearch.documents import OpenSearchDocuments
from redrive.stores.opensearch.fields import Held, create, held, letter_in, replacement, whole
from redrive.stores.opensearch.query import among, by_age, by_urgency, claimable, cursor_of, position, selected
from redrive.stores.opensearch.schema import Schema
from redrive.stores.opensearch.series import OpenSearchSeries
from redrive.stores.opensearch.texts import Texts
from redrive.stores.opensearch.versions import KeptVersions
from redrive.stores.rounds import by_id, rounds
from redrive.stores.scoped import within
from redrive.stores.shape import Shape

_PAGE = 500  # letters in one answer
_IDS = 5000  # ids in one answer
_SOURCES, _KINDS = 1000, 1000  # of one group; of one page of tallies


class OpenSearchLetters:
    """Keeps letters as documents of their shape, with what is searched beside it under `redrive`."""

    def __init__(self, access: Access, schema: Schema, shape: Shape, series: OpenSearchSeries) -> None:
        self._access = access
        self._series = series
        self._schema = schema
        self.shape = shape
        self._arrivals = Arrivals()
        self.texts = Texts(self, OpenSearchDocuments(access, schema))
        self._index = schema.letters
        self._versions = KeptVersions(access, schema.documents)

    async def record(self, letters: Sequence[Letter]) -> None:
        """Write the letters in one bulk request: as a rule all are new. Those that are known rejoin theirs."""
        await self._schema.ready()
        for some in rounds(letters, by_id):
            actions = [create(letter, self._arrivals.next(), self.shape) for letter in some]
            statuses = await self._access.write(self._index, actions)
            known = [letter for letter, status in zip(some, statuses, strict=True) if status == CONFLICT]
            fresh = [letter for letter, status in zip(some, statuses, strict=True) if status != CONFLICT]
            again, apart = await self._rejoin(known)
            await self._series.count(buried(fresh, again))
            if apart:
                await self.record(apart)

    async def get(self, id: LetterId) -> Letter | None:
        await self._schema.ready()
        found = await self._read([id])
        return found[0].letter if found else None

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        place = None if after is None else position(after)
        query = await self._within(query)
        if query.text:
            return await self.texts.page(query, after, limit, oldest_first)
        body = {"query": selected(query), "sort": by_age(oldest_first=oldest_first)}
        hits = [hit async for page in self.pages(body, limit=limit, after=place) for hit in page]
        letters = tuple(letter_in(hit, self.shape) for hit in hits)
        return Page(letters, cursor_of(hits[-1]["sort"]) if hits and len(hits) == limit else None)

    async def count(self, query: Query) -> int:
        return await self.count_of(await self._selected(query))

    async def count_of(self, wanted: Json) -> int:
        """How many documents meet it."""
        await self._fresh()
        return await self._access.count(self._index, wanted)

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        """The groups as the cluster counts them. With several shards the counts are exact up to 10,000 groups."""
        wanted = await self._selected(query)
        await self._fresh()
        body = {"size": 0, "query": wanted, "aggs": {"groups": _by_group(skip + limit, order)}}
        answer = await self._access.search(self._index, body)
        return [_group(bucket) for bucket in answer["aggregations"]["groups"]["buckets"][skip:]]

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        await self._fresh()
        body = {"size": 0, "query": selected(Query(groups=tuple(groups))), "aggs": {"groups": _by_tenant(groups, most)}}
        answer = await self._access.search(self._index, body) if groups else _NO_GROUPS
        found: dict[str, list[str]] = {whole(group): [] for group in groups}
        for bucket in answer["aggregations"]["groups"]["buckets"]:
            found[bucket["key"]] = [tenant["key"] for tenant in bucket["tenants"]["buckets"]]
        return {group: hit_of(found[whole(group)], most) for group in groups}

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        wanted = await self._selected(query or Query())
        await self._fresh()
        return [_tally(bucket) for bucket in await self._kinds(wanted, "source", "state", "category")]

    async def _kinds(self, wanted: Json, *fields: str) -> list[Json]:
        """The values that letters have in these fields, together, and how many have them."""
        found: list[Json] = []
        after: Json | None = None
        while True:
            body = {"size": 0, "query": wanted, "aggs": {"kinds": _by_kind(fields, after)}}
            kinds = (await self._access.search(self._index, body))["aggregations"]["kinds"]
            found += kinds["buckets"]
            after = kinds.get("after_key")
            if after is None:
                return found

    async def _selected(self, query: Query, *more: Json) -> Json:
        """The search for what the query selects, and what meets these clauses."""
        return await self.texts.selected(await self._within(query), *more)

    async def _within(self, query: Query) -> Query:
        return await within(query, partial(self._names, "source"), partial(self._names, "tenant"))

    async def _names(self, field: str) -> list[str]:
        """Every source, or tenant, that has letters."""
        await self._fresh()
        return [bucket["key"][field] for bucket in await self._kinds(selected(Query()), field)]

    async def claim(
        self,
        query: Query,
        *,
        to: State,
        owner: Owner,
        now: datetime,
        until: datetime,
        limit: int,
        replay: str | None = None,
    ) -> Sequence[Letter]:
        """Claim the most urgent, each only if nobody wrote it since; where others were faster, look again."""
        body = {"query": await self._selected(query, claimable(to, owner)), "sort": by_urgency()}
        taken: dict[LetterId, Letter] = {}
        lost = True
        while lost and len(taken) < limit:
            lost = False
            async for found in self._free(body, size=min(limit, _PAGE)):
                wanted = [stored for stored in found if stored.letter.id not in taken][: limit - len(taken)]
                won = await self._replace(wanted, lambda letter: claimed(letter, to, owner, now, until, replay))
                taken |= {letter.id: letter for letter in won}
                lost = lost or len(won) < len(wanted)
                if len(taken) == limit:
                    break
        return list(taken.values())

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        await self._schema.ready()
        gone: list[Letter] = []
        left = list(dict.fromkeys(ids))
        while left:
            some, left = left[:_PAGE], left[_PAGE:]
            found = [stored for stored in await self._read(some) if stored.letter.state in expect]
            going = [stored for stored in found if owner in (None, stored.letter.owner)]
            won = await self._replace(going, lambda letter: moved(letter, to, now))
            gone += won
            lost = _without((stored.letter.id for stored in going), [letter.id for letter in won])
            left += lost  # somebody wrote it meanwhile: read it again
        if to is State.RESOLVED and State.RESOLVED not in expect:
            await self._series.count(resolved([(letter.message.source, letter.category) for letter in gone], now))
        return [letter.id for letter in gone]

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        body = {
            "query": await self._selected(query, among("state", AT_REST)),
            "sort": by_age(oldest_first=True),
            "_source": [_VERSION],
            "seq_no_primary_term": True,
        }
        gone: list[LetterId] = []
        lost = True
        while lost and len(gone) < limit:
            lost = False
            async for hits in self.pages(body, limit=limit - len(gone), size=_IDS):
                actions = [Action(Op.DELETE, hit["_id"], None, (hit["_seq_no"], hit["_primary_term"])) for hit in hits]
                statuses = await self._access.write(self._index, actions)
                deleted = [hit for hit, status in zip(hits, statuses, strict=True) if status in OK]
                gone += [hit["_id"] for hit in deleted]
                await self._versions.drop({hit["_id"]: _version_in(hit) for hit in deleted})
                lost = lost or CONFLICT in statuses
        return gone

    async def freezable(self, query: Query) -> AsyncGenerator[list[LetterId], None]:
        """The letters that a replay of that query may take, as they are at one moment, the oldest first."""
        wanted = await self._selected(query, among("state", REPLAYABLE))
        await self._fresh()
        body = {"query": wanted, "sort": by_age(oldest_first=True), "_source": False}
        async with self._access.snapshot(self._index) as snapshot:
            async for hits in self._access.pages(None, {**body, **snapshot}, size=_IDS):
                yield [hit["_id"] for hit in hits]

    async def _fresh(self) -> None:
        """Make sure that the index exists, and that searches find what was written."""
        await self._schema.ready()
        await self._access.refresh(self._index)

    async def pages(
        self, body: Json, *, limit: int | None = None, after: Sequence[Any] | None = None, size: int = _PAGE
    ) -> AsyncIterator[list[Json]]:
        await self._fresh()
        asked = {"seq_no_primary_term": True, **body}
        async for hits in self._access.pages(self._index, asked, size=size, limit=limit, after=after):
            yield hits

    async def held_pages(self, body: Json, *, limit: int) -> AsyncIterator[list[Held]]:
        """The letters that meet it, as they were read."""
        async for hits in self.pages(body, limit=limit):
            yield [held(hit, self.shape) for hit in hits]

    async def write(self, actions: Sequence[Action]) -> list[int]:
        """Write these; returns the status of each."""
        return await self._access.write(self._index, actions)

    async def _free(self, body: Json, *, size: int) -> AsyncIterator[list[Held]]:
        """The letters found that wait for no other letter."""
        async for hits in self.pages(body, size=size):
            found = [held(hit, self.shape) for hit in hits]
            awaited = await self._still_open({id for stored in found for id in stored.letter.depends_on})
            yield [stored for stored in found if awaited.isdisjoint(map(whole, stored.letter.depends_on))]

    async def _still_open(self, messages: Collection[str]) -> set[str]:
        """Those of the messages that have a letter which is neither resolved nor archived."""
        if not messages:
            return set()
        ask = selected(Query(message_ids=tuple(messages)), among("state", UNRESOLVED))
        found = {"terms": {"field": "redrive.message_id", "size": len(messages)}}
        answer = await self._access.search(self._index, {"size": 0, "query": ask, "aggs": {"messages": found}})
        return {bucket["key"] for bucket in answer["aggregations"]["messages"]["buckets"]}

    async def _read(self, ids: Sequence[LetterId]) -> list[Held]:
        """The letters of these ids that exist; what somebody else keeps in the index is none."""
        found = await self._access.read(self._index, ids)
        return [held(document, self.shape) for document in found if "redrive" in document["_source"]]

    async def _replace(self, found: Sequence[Held], change: Callable[[Letter], Letter]) -> list[Letter]:
        """Change each that is still as it was read; returns the letters that changed."""
        letters = [change(stored.letter) for stored in found]
        actions = [replacement(stored, letter, self.shape) for stored, letter in zip(found, letters, strict=True)]
        statuses = await self._access.write(self._index, actions)
        return [letter for letter, status in zip(letters, statuses, strict=True) if status in OK]

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        """Edit letters, again where somebody wrote one at the same time."""
        await self._schema.ready()
        won: list[LetterId] = []
        left = {revision.letter: revision for revision in revisions}
        while left:
            found = await self._read(list(left)[:_PAGE])
            rest = {id: left[id] for id in list(left)[_PAGE:]}
            new = {stored.letter.id: edited(stored.letter, left[stored.letter.id]) for stored in found}
            going = [(stored, letter) for stored in found if (letter := new[stored.letter.id]) is not None]
            await self._versions.write([version_of(stored.letter) for stored, _ in going])
            actions = [replacement(stored, letter, self.shape) for stored, letter in going]
            statuses = await self._access.write(self._index, actions)
            ids = [letter.id for _, letter in going]
            won += [id for id, status in zip(ids, statuses, strict=True) if status in OK]
            left = rest | {id: left[id] for id, status in zip(ids, statuses, strict=True) if status not in OK}
        return won

    async def version_number(self, id: LetterId) -> int:
        """The number of a letter's version; 0: it was not edited, or is not there."""
        await self._schema.ready()
        found = await self._read([id])
        return found[0].letter.version if found else 0

    async def _rejoin(self, letters: Sequence[Letter]) -> tuple[list[Letter], list[Letter]]:
        """Join them to known letters, again where somebody wrote or deleted one at the same time. Returns those that
        died anew, as they are now, and those of other tenants, which are to be recorded apart."""
        left = {letter.id: letter for letter in letters}
        joined: list[Letter] = []
        apart: list[Letter] = []
        while left:
            some = list(left)[:_PAGE]
            known = {stored.letter.id: stored for stored in await self._read(some)}
            apart += [set_apart(left.pop(id)) for id in some if id in known and is_anothers(known[id].letter, left[id])]
            writes = {id: self._joined(left[id], known.get(id)) for id in some if id in left}
            actions = {id: action for id, (_, action) in writes.items() if action is not None}
            replaced = [known[id].letter for id, (new, _) in writes.items() if id in known and new is not None]
            newer = {id: new.version for id, (new, _) in writes.items() if new is not None}
            await self._versions.write([version_of(old) for old in replaced if newer[old.id] > old.version])
            statuses = await self._access.write(self._index, list(actions.values()))
            lost = {id for id, status in zip(actions, statuses, strict=True) if status not in OK}
            joined += [new for id, (new, _) in writes.items() if new is not None and id not in lost]
            left = {id: letter for id, letter in left.items() if id in lost or id not in writes}
        return joined, apart

    def _joined(self, letter: Letter, known: Held | None) -> tuple[Letter | None, Action | None]:
        """Its letter with it, and the write of that; None if nothing of it is new."""
        if known is None:
            return letter, create(letter, self._arrivals.next(), self.shape)
        new = rejoined(known.letter, letter)
        return new, None if new is None else replacement(known, new, self.shape)


_VERSION = "redrive.version"


def _version_in(hit: Json) -> int:
    """The number of the version of a hit whose `_source` is that alone."""
    return int(hit.get("_source", {}).get("redrive", {}).get("version", 0))


def _without(ids: Iterable[LetterId], some: Collection[LetterId]) -> list[LetterId]:
    known = set(some)
    return [id for id in ids if id not in known]


_ORDERS = {
    GroupOrder.LETTERS: {"_count": "desc"},
    GroupOrder.LAST_SEEN: {"last_at": "desc"},
    GroupOrder.FIRST_SEEN: {"first_at": "desc"},
}


_NO_GROUPS: Json = {"aggregations": {"groups": {"buckets": []}}}


def _by_tenant(groups: Sequence[str], most: int) -> Json:
    """The first tenants of each of these groups, and one more if there is one."""
    tenants = {"terms": {"field": "redrive.tenant", "size": most + 1, "order": {"_key": "asc"}}}
    return {"terms": {"field": "redrive.group", "size": len(groups)}, "aggs": {"tenants": tenants}}


def _by_group(limit: int, order: GroupOrder) -> Json:
    shown = [f"redrive.{name}" for name in ("error_type", "error_message", "category")]
    example = {"size": 1, "sort": [{"redrive.updated_at": "desc"}], "_source": shown}
    oldest = {"size": 1, "sort": by_age(oldest_first=True), "_source": ["redrive.first_version"]}
    newest = {"size": 1, "sort": by_age(oldest_first=False), "_source": ["redrive.last_version"]}
    return {
        "terms": {
            "field": "redrive.group",
            "size": limit,
            "shard_size": max(limit, 10_000),
            "order": [_ORDERS[order], {"_key": "asc"}],
        },
        "aggs": {
            "states": {"terms": {"field": "redrive.state", "size": len(State)}},
            "sources": {"terms": {"field": "redrive.source", "size": _SOURCES}},
            "first_at": {"min": {"field": "redrive.first_at"}},
            "last_at": {"max": {"field": "redrive.last_at"}},
            "example": {"top_hits": example},
            "oldest": {"top_hits": oldest},
            "newest": {"top_hits": newest},
        },
    }


def _group(bucket: Json) -> Group:
    [example] = bucket["example"]["hits"]["hits"]
    shown = example["_source"]["redrive"]
    return Group(
        id=bucket["key"],
        count=bucket["doc_count"],
        error_type=shown["error_type"],
        message=shown["error_message"],
        category=Category(shown["category"]),
        sources=tuple(sorted(source["key"] for source in bucket["sources"]["buckets"])),
        states={State(state["key"]): state["doc_count"] for state in bucket["states"]["buckets"]},
        first_at=moment(int(bucket["first_at"]["value"])),
        last_at=moment(int(bucket["last_at"]["value"])),
        first_version=_version(bucket, "oldest", "first_version"),
        last_version=_version(bucket, "newest", "last_version"),
    )


def _version(bucket: Json, end: str, field: str) -> str:
    """The version in the letter at that end of a group; one that was written before it was kept has none."""
    [hit] = bucket[end]["hits"]["hits"]
    return str(hit["_source"].get("redrive", {}).get(field, ""))


def _by_kind(fields: Sequence[str], after: Json | None) -> Json:
    sources = [{name: {"terms": {"field": f"redrive.{name}"}}} for name in fields]
    place = {} if after is None else {"after": after}
    return {"composite": {"size": _KINDS, "sources": sources, **place}}


def _tally(bucket: Json) -> Tally:
    key = bucket["key"]
    return Tally(key["source"], State(key["state"]), Category(key["category"]), bucket["doc_count"])
