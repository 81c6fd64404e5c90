"""The audit trail: one chain for all who write, and none of it is changed, removed or moved unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive.access.actors import Actor, Role, Via
from redrive.access.trail import Checkpoint, Head, Phase, body_of, chained, said
from redrive.access.trail_store import ANCHOR, KIND, OLDER, Filter, Trail
from redrive.clock import Clock, SystemClock
from redrive.errors import UsageError
from redrive.stores.base import Documents, Store
from redrive.testing.clock import START
from redrive.testing.stores.backend import StoreBackend

EVE = Actor(id="tok1", name="eve", role=Role.OPERATOR, via=Via.TOKEN)


async def written(store: Store, count: int, clock: Clock | None = None) -> Trail:
    """A chain of a first line and that many others, each in a block of its own."""
    trail = Trail(store.documents, clock or SystemClock())
    for number in range(count):
        await _append(trail, f"letter-{number}")
    return trail


class AuditTrail:
    """Whoever changes a line, takes one away or moves it, is found out, and the line is named."""

    async def test_a_trail_is_whole_and_reads_newest_first(self, store: Store) -> None:
        trail = await written(store, 5)
        found = [line async for line in trail.lines()]
        assert [line.seq for line in found] == [6, 5, 4, 3, 2, 1]
        assert [line.seq async for line in trail.lines(before=3)] == [2, 1]
        assert [line.seq async for line in trail.lines(Filter(about="letter-2"))] == [4]
        assert (found[0].actor, found[0].id, found[0].via, found[0].action) == ("eve", "tok1", Via.TOKEN, "purge")
        verdict = await trail.verify()
        assert (verdict.is_whole, verdict.lines, verdict.head.seq) == (True, 6, 6)

    async def test_a_changed_line_is_named(self, store: Store) -> None:
        trail = await written(store, 4)
        await _change(store, 3, lambda text: text.replace("eve", "bob"), rehash=False)
        assert await _broken(trail) == (3, "changed: its text is not what was hashed")

    async def test_a_changed_line_with_a_new_hash_is_named_too(self, store: Store) -> None:
        trail = await written(store, 4)
        await _change(store, 3, lambda text: text.replace("eve", "bob"), rehash=True)
        assert await _broken(trail) == (3, "changed: line 4 was written behind another")

    async def test_a_removed_line_is_named(self, store: Store) -> None:
        trail = await written(store, 4)
        await store.documents.delete(KIND, f"{3:015}")
        assert await _broken(trail) == (3, "removed")

    async def test_a_block_that_was_emptied_is_named_and_stops_nobody(self, store: Store) -> None:
        trail = await written(store, 4)
        await store.documents.put(KIND, f"{5:015}", {"lines": []})
        assert await _broken(trail) == (5, "changed: it is no line of a trail any more")
        await _append(Trail(store.documents, SystemClock()), "goes on")
        assert (await anext(trail.lines())).about == ("goes on",)

    async def test_a_block_that_stands_twice_is_named(self, store: Store) -> None:
        trail = await written(store, 3)
        block = await store.documents.get(KIND, f"{3:015}")
        assert block is not None
        await store.documents.put(KIND, f"{5:015}", block.body)
        assert await _broken(trail) == (5, "reordered or removed: line 3 stands in its place")

    async def test_an_anchor_or_a_key_that_cannot_be_read_stops_nobody(self, store: Store) -> None:
        trail = await written(store, 3)
        await store.documents.put(ANCHOR, ANCHOR, {"checkpoint": 5})
        await _append(Trail(store.documents, SystemClock()), "goes on")
        with pytest.raises(UsageError, match="the anchor"):
            await trail.verify()
        await store.documents.put("trail-key", "trail-key", {"key": "no hex"})
        await _append(Trail(store.documents, SystemClock()), "goes on")
        with pytest.raises(UsageError, match=r"access\.trail_key"):
            await trail.checkpoint()

    async def test_a_forged_line_without_a_time_stops_no_reader(self, store: Store) -> None:
        trail = await written(store, 1)
        forged = said(EVE, "purge", Phase.DONE, at="never", about=("forged",))
        await trail.append(forged)
        since = Filter(since=datetime(2020, 1, 1, tzinfo=UTC))
        assert (await anext(trail.lines(since))).about == ("forged",)
        assert await trail.prune(datetime(2999, 1, 1, tzinfo=UTC)) == 2  # up to what cannot be told

    async def test_a_chain_that_was_made_anew_with_an_odd_first_line(self, store: Store) -> None:
        trail = await written(store, 1)
        begun = said(EVE, "trail begins", Phase.DONE, at=START.isoformat(), about=("", "x", "many"))
        lines, _ = chained(Head(), [begun])
        await store.documents.put(KIND, f"{1:015}", body_of(lines))
        await store.documents.delete(KIND, f"{2:015}")
        verdict = await trail.verify()
        assert (verdict.is_whole, verdict.older_changed) == (False, True)

    async def test_lines_in_another_order_are_named(self, store: Store) -> None:
        trail = await written(store, 4)
        second, fourth = [await store.documents.get(KIND, f"{seq:015}") for seq in (2, 4)]
        assert second is not None
        assert fourth is not None
        await store.documents.put(KIND, second.id, fourth.body)
        await store.documents.put(KIND, fourth.id, second.body)
        assert await _broken(trail) == (2, "reordered or removed: line 4 stands in its place")

    async def test_an_end_that_was_cut_off_is_seen_beside_a_checkpoint(self, store: Store) -> None:
        trail = await written(store, 4)
        kept = await trail.checkpoint()
        await _append(trail, "later")
        assert (await trail.verify(kept)).checkpoint == 5
        for seq in (4, 5, 6):
            await store.documents.delete(KIND, f"{seq:015}")
        assert await _broken(trail) is None, "nothing in the store says that there was more"
        assert await _broken(trail, kept) == (4, "removed: the trail ends at 3, the checkpoint at 5")

    async def test_a_chain_that_was_written_anew_is_seen_beside_a_checkpoint(self, store: Store) -> None:
        trail = await written(store, 4)
        kept = await trail.checkpoint()
        for seq in range(2, 6):
            await store.documents.delete(KIND, f"{seq:015}")
        forger = Trail(store.documents, SystemClock())
        for _ in range(6):
            await _append(forger, "nothing happened")
        assert await _broken(trail) is None
        found = await _broken(trail, kept)
        assert found is not None
        assert found[0] == 5

    async def test_two_writers_make_one_chain(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open() if store.features.shared else store
        trails = [Trail(through.documents, SystemClock()) for through in (store, other, store)]
        places = await asyncio.gather(*(_append(trails[n % 3], f"letter-{n}") for n in range(60)))
        verdict = await Trail(store.documents, SystemClock()).verify()
        if other is not store:
            await other.aclose()
        assert sorted(places) == list(range(2, 62)), "each has a place of its own"
        assert (verdict.is_whole, verdict.lines) == (True, 61)

    async def test_retention_leaves_a_chain_that_holds(self, store: Store) -> None:
        trail = await written(store, 5)
        limit = datetime.fromisoformat([line.at async for line in trail.lines()][1])
        assert await trail.prune(limit) == 4
        verdict = await trail.verify()
        assert (verdict.is_whole, verdict.first, verdict.head.seq) == (True, 5, 7)
        assert [line.action async for line in trail.lines()] == ["trail pruned", "purge", "purge"]
        assert await trail.prune(limit - timedelta(days=1)) == 0
        anchor = await store.documents.get(ANCHOR, ANCHOR)
        assert anchor is not None
        forged: dict[str, Any] = {"checkpoint": {**anchor.body["checkpoint"], "seq": 5}}
        await store.documents.put(ANCHOR, ANCHOR, forged)
        with pytest.raises(UsageError, match="anchor"):
            await trail.verify()

    async def test_two_who_prune_at_once_leave_a_chain_that_holds(self, store: Store) -> None:
        trail = await written(store, 6)
        times = [datetime.fromisoformat(line.at) async for line in trail.lines(ascending=True)]
        between = _Between(store.documents, "put", ANCHOR)
        late = Trail(between, SystemClock())
        between.then = lambda: trail.prune(times[5])
        await late.prune(times[2])
        assert between.was_asked
        verdict = await trail.verify()
        assert (verdict.is_whole, verdict.first) == (True, 6), "the anchor stays where the one who removed more put it"

    async def test_retention_under_the_eyes_of_a_verifier_is_no_tampering(self, store: Store) -> None:
        trail = await written(store, 6)
        times = [datetime.fromisoformat(line.at) async for line in trail.lines(ascending=True)]
        between = _Between(store.documents, "list", KIND)
        between.then = lambda: trail.prune(times[4])
        verdict = await Trail(between, SystemClock()).verify()
        assert between.was_asked
        assert (verdict.is_whole, verdict.first) == (True, 5)

    async def test_retention_says_who_and_takes_what_is_older_than_the_chain(self, store: Store) -> None:
        for id, at in (("a", "2020-01-01T00:00:00+00:00"), ("b", "not a time")):
            body = {"at": at, "actor": "eve", "action": "archive", "detail": id}
            await store.documents.put(OLDER, id, body)
        trail = await written(store, 3)
        limit = datetime.fromisoformat((await anext(trail.lines())).at)
        assert await trail.prune(limit, by=EVE) == 4, "three lines of the chain, and one from before"
        assert [document.id async for document in trail.older()] == ["b"]
        line = await anext(trail.lines())
        assert (line.action, line.actor, line.via) == ("trail pruned", "eve", Via.TOKEN)

    async def test_what_was_written_before_the_chain_and_changed_is_not_pruned_away(self, store: Store) -> None:
        await store.documents.put(OLDER, "a", {"actor": "eve", "action": "archive", "detail": "a"})
        trail = await written(store, 3)
        await store.documents.put(OLDER, "a", {"actor": "bob", "action": "archive", "detail": "a"})
        with pytest.raises(UsageError, match="before the chain"):
            await trail.prune(datetime(2999, 1, 1, tzinfo=UTC))

    async def test_what_ended_later_is_told_from_any_line_on(self, store: Store) -> None:
        trail = await written(store, 2)
        at = SystemClock().now().isoformat()
        lines = [said(EVE, "purge", Phase.DONE, at=at, of=of) for of in (2, 3, None, 3)]
        await asyncio.gather(*map(trail.append, lines))  # two blocks of them
        assert [of async for of in trail.ended_from(1)] == [2, 3, 3]
        assert [of async for of in trail.ended_from(5)] == [3, 3]
        assert [of async for of in trail.ended_from(99)] == []

    async def test_what_was_written_before_the_chain_is_proven_with_it(self, store: Store) -> None:
        for id in ("a", "b"):
            await store.documents.put(OLDER, id, {"actor": "eve", "action": "archive", "detail": id})
        trail = await written(store, 1)
        verdict = await trail.verify()
        assert (verdict.is_whole, verdict.older) == (True, 2)
        await store.documents.put(OLDER, "c", {"detail": "of a process that was not upgraded yet"})
        assert (await trail.verify()).is_whole
        await store.documents.put(OLDER, "a", {"actor": "bob", "action": "archive", "detail": "a"})
        assert (await trail.verify()).older_changed


class _Between:
    """Documents where something else happens just before one is asked for by that method, once."""

    def __init__(self, documents: Documents, method: str, kind: str) -> None:
        self._documents = documents
        self._method = method
        self._kind = kind
        self.then: Callable[[], Awaitable[object]] | None = None
        self.was_asked = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._documents, name)
        if name != self._method:
            return real

        async def between(kind: str, *args: Any, **kwargs: Any) -> Any:
            then, self.then = (self.then, None) if kind == self._kind else (None, self.then)
            if then is not None:
                self.was_asked = True
                await then()
            return await real(kind, *args, **kwargs)

        return between


async def _append(trail: Trail, about: str) -> int:
    at = SystemClock().now().isoformat()
    return await trail.append(said(EVE, "purge", Phase.DONE, at=at, detail=about, about=[about]))


async def _broken(trail: Trail, checkpoint: Checkpoint | None = None) -> tuple[int, str] | None:
    found = (await trail.verify(checkpoint)).broken
    return None if found is None else (found.seq, found.why)


async def _change(store: Store, seq: int, change: Any, *, rehash: bool) -> None:
    from redrive.access.trail import hash_of

    block = await store.documents.get(KIND, f"{seq:015}")
    assert block is not None
    [[text, hash]] = block.body["lines"]
    changed = change(text)
    assert changed != text
    await store.documents.put(KIND, block.id, {"lines": [[changed, hash_of(changed) if rehash else hash]]})
