"""Everything that can be asked of Redrive, and done with it: one API for HTTP, console and CLI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from redrive import Redrive
from redrive.config.settings import Redaction, Settings
from redrive.errors import BadQuery, UnknownLetter, UnknownReplay, UnknownSource, UsageError
from redrive.flow.replay import ReplayState
from redrive.forensics.query import Query
from redrive.model import Category, Letter, State
from redrive.service import Service
from redrive.stores.base import Entry, EntryStatus
from redrive.telemetry.events import Acted, Event, LettersMoved, LettersPruned
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import ManualClock
from tests.actors import acting
from tests.unit.support import nothing

ALL = Query()
SECRET = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"  # the shape of a key, of no account


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/redrive.db"
    settings = Settings(store=url, transports={"default": url}, redact=Redaction(keys=("nickname",)), worker="w")
    async with Redrive(settings=settings, clock=ManualClock()) as app:
        app.handler("orders")(nothing)
        yield Service(app)


async def _bury(service: Service, number: int = 1, *, source: str = "orders", **changes: Any) -> list[Letter]:
    letters = []
    for _ in range(number):
        at = service.app.clock.now()
        message = {name: changes[name] for name in ("body", "headers", "tenant", "key", "id") if name in changes}
        names = {"type": "type", "category": "category", "error": "message", "stack": "stack"}
        failure = {field: changes[name] for name, field in names.items() if name in changes}
        rest = {name: value for name, value in changes.items() if name not in {*message, *names}}
        made = make_message(source=source, **message)
        letters.append(make_letter(made, make_failure(at=at, **failure), at=at, **rest))
        await service.app.clock.advance(1)  # type: ignore[attr-defined]
    await service.app.store.letters.record(letters)
    return letters


async def _queued(service: Service) -> int:
    depths = await service.app.transport().depths()
    return sum(depth.total for depth in depths.values())


def _watch(service: Service) -> list[Event]:
    facts: list[Event] = []
    service.app.events.subscribe(facts.append)
    return facts


async def test_letters_are_listed_newest_first_page_by_page_without_a_gap(service: Service) -> None:
    letters = await _bury(service, 25)
    seen: list[str] = []
    after = None
    while True:
        page = await service.letters(ALL, after=after, limit=10)
        seen += [one.id for one in page.letters]
        after = page.after
        if after is None:
            break
    assert seen == [letter.id for letter in reversed(letters)]


async def test_a_letter_that_dies_while_one_pages_neither_repeats_nor_hides_another(service: Service) -> None:
    letters = await _bury(service, 20)
    first = await service.letters(ALL, limit=10)
    await _bury(service, 5)
    second = await service.letters(ALL, after=first.after, limit=10)
    assert [one.id for one in (*first.letters, *second.letters)] == [letter.id for letter in reversed(letters)]


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_has_bounds(service: Service, limit: int) -> None:
    for call in (service.letters(ALL, limit=limit), service.groups(ALL, limit=limit)):
        with pytest.raises(UsageError, match="a page has 1 to 1000"):
            await call


async def test_a_cursor_of_ones_own_making_is_refused(service: Service) -> None:
    await _bury(service, 3)
    with pytest.raises(BadQuery, match="not a cursor"):
        await service.letters(ALL, after="yesterday")


async def test_letters_are_filtered(service: Service) -> None:
    (wanted,) = await _bury(service, 1, tenant="acme", category=Category.NETWORK, error="timed out at the bank")
    await _bury(service, 3, tenant="globex")
    for query in (
        Query(tenants=("acme",)),
        Query(categories=(Category.NETWORK,)),
        Query(text="BANK"),
        Query(groups=(wanted.group,)),
    ):
        assert [one.id for one in (await service.letters(query)).letters] == [wanted.id]
        assert await service.count(query) == 1


async def test_a_source_that_nobody_has_ever_seen_is_a_typo_and_not_an_empty_answer(service: Service) -> None:
    typo = Query(sources=("oders",))
    calls: list[Any] = [
        service.letters(typo),
        service.groups(typo),
        service.count(typo),
        service.plan(typo),
        service.replay(typo, actor=acting("a")),
        service.archive(typo, actor=acting("a")),
        service.purge(typo, actor=acting("a")),
        anext(service.export(typo)),
    ]
    for call in calls:
        with pytest.raises(UnknownSource, match="did you mean 'orders'"):
            await call


async def test_a_source_is_known_by_its_handler_its_letters_its_queue_or_its_declaration(service: Service) -> None:
    await _bury(service, source="emails")
    service.app.declare("audit")
    await service.app.send("audit", b"")
    service.app.declare("events")
    assert (await service.sources()).sources == ["audit", "emails", "events", "orders"]
    assert (await service.letters(Query(sources=("events",)))).letters == []


async def test_a_letter_is_found_by_its_id_the_beginning_of_it_or_the_id_of_its_message(service: Service) -> None:
    letter, _ = await _bury(service, 2)
    for name in (letter.id, letter.id[:10], letter.message.id):
        assert (await service.letter(name)).id == letter.id
        assert await service.find(name) == letter


@pytest.mark.parametrize("name", ["", "nowhere", "zzzz"])
async def test_a_letter_that_is_not_there_is_named(service: Service, name: str) -> None:
    with pytest.raises(UnknownLetter, match=repr(name)):
        await service.letter(name)


async def test_one_message_id_on_two_sources_asks_back(service: Service) -> None:
    first, second = [*await _bury(service, id="same"), *await _bury(service, id="same", source="emails")]
    with pytest.raises(UsageError, match="more than one letter") as caught:
        await service.letter("same")
    assert first.id in str(caught.value)
    assert second.id in str(caught.value)


async def test_nothing_that_is_shown_has_a_secret_and_nothing_that_is_stored_is_redacted(service: Service) -> None:
    body = msgspec.json.encode({"password": "hunter2", "nickname": "Bunny", "key": SECRET})
    headers = (("authorization", f"Bearer {SECRET}".encode()),)
    (letter,) = await _bury(
        service, body=body, headers=headers, error=f"declined {SECRET}", stack=f"pay('{SECRET}')", key=SECRET.encode()
    )
    replay = await service.replay(ALL, every=True, actor=acting("ann"))
    await service.run_replay(replay.id)
    note = Entry(replay.id, letter.id, EntryStatus.FAILED, service.app.clock.now(), f"declined {SECRET}")
    await service.app.store.ledger.mark([note])
    await service.archive(Query(text=SECRET), actor=acting("ann"))
    shown = [
        await service.letters(ALL),
        await service.letter(letter.id),
        list(await service.groups(ALL)),
        await service.plan(ALL),
        await service.replay_entries(replay.id),
        await service.stats(),
        await service.audit(),
    ]
    written = msgspec.json.encode(shown).decode()
    for secret in (SECRET, "hunter2", "Bunny"):
        assert secret not in written
    stored = await service.find(letter.id)
    assert (stored.message, stored.failures) == (letter.message, letter.failures)
    (delivery,) = await service.app.transport().receive("orders", 1)
    assert delivery.message.body == body
    assert delivery.message.headers[:1] == headers


async def test_groups_are_one_for_each_cause_the_largest_first(service: Service) -> None:
    await _bury(service, 2, type="shop.CardError", error="declined 17")
    await _bury(service, 2, type="shop.StockError", error="none left of 4711")
    await _bury(service, 1, type="shop.CardError", error="declined 18", source="emails")
    groups = await service.groups(ALL)
    assert [(one.error_type, one.count, set(one.sources)) for one in groups] == [
        ("shop.CardError", 3, {"orders", "emails"}),
        ("shop.StockError", 2, {"orders"}),
    ]
    assert len(await service.groups(ALL, limit=1)) == 1
    assert [one.count for one in await service.groups(Query(sources=("emails",)))] == [1]


async def test_stats_count_letters_and_queues(service: Service) -> None:
    await _bury(service, 2)
    await _bury(service, 1, state=State.RESOLVED, source="emails")
    await service.app.send("orders", b"")
    stats = await service.stats()
    assert (stats.total, stats.open) == (3, 2)
    assert [(one.source, one.queued.total if one.queued else 0) for one in stats.sources] == [
        ("emails", 0),
        ("orders", 1),
    ]


async def test_a_plan_says_what_a_replay_would_send(service: Service) -> None:
    await _bury(service, 3)
    await _bury(service, 2, source="emails", state=State.EXHAUSTED)
    for state in (State.RESOLVED, State.ARCHIVED, State.RETRYING, State.REPLAYING):
        await _bury(service, state=state)
    plan = await service.plan(ALL)
    assert (plan.total, plan.left_out) == (5, 4)
    assert plan.sources == {"orders": 3, "emails": 2}
    assert sum(group.count for group in plan.groups) == 5
    assert (await service.replay(ALL, every=True, actor=acting("ann"))).total == plan.total


async def test_a_plan_of_nothing_is_nothing(service: Service) -> None:
    await _bury(service, 2, state=State.RESOLVED)
    plan = await service.plan(Query(states=(State.RESOLVED,)))
    assert (plan.total, plan.sources, plan.groups, plan.left_out) == (0, {}, [], 2)


async def test_a_replay_is_started_run_and_reported(service: Service) -> None:
    await _bury(service, 3)
    replay = await service.replay(ALL, every=True, actor=acting("ann"), reason="the bank is back")
    assert await _queued(service) == 0
    steps: list[int] = []
    report = await service.run_replay(replay.id, progress=steps.append)
    assert (report.replay.state, report.replay.total, report.entries) == (ReplayState.SENT, 3, {EntryStatus.SENT: 3})
    assert sum(steps) == 3
    assert await _queued(service) == 3
    entries, more = await service.replay_entries(replay.id, status=EntryStatus.SENT, limit=2)
    assert len(entries) == 2
    rest, _ = await service.replay_entries(replay.id, after=more, limit=2)
    assert len(rest) == 1


async def test_a_replay_may_be_cancelled(service: Service) -> None:
    await _bury(service, 3)
    replay = await service.replay(ALL, every=True, actor=acting("ann"))
    report = await service.cancel_replay(replay.id, actor=acting("bob"))
    assert (report.replay.state, report.entries) == (ReplayState.CANCELLED, {EntryStatus.SELECTED: 3})
    assert (await service.run_replay(replay.id)).replay.state is ReplayState.CANCELLED
    assert await _queued(service) == 0


async def test_a_replay_that_is_not_there_is_named(service: Service) -> None:
    calls: list[Any] = [
        service.run_replay("x"),
        service.cancel_replay("x", actor=acting("a")),
        service.replay_report("x"),
        service.replay_entries("x"),
    ]
    for call in calls:
        with pytest.raises(UnknownReplay, match="'x'"):
            await call


async def test_a_retry_sends_exactly_these_now(service: Service) -> None:
    first, second, _ = await _bury(service, 3)
    report = await service.retry([first.id, second.message.id], actor=acting("ann"))
    assert report.entries == {EntryStatus.SENT: 2}
    assert await _queued(service) == 2


async def test_a_retry_of_nothing_or_of_somebody_unknown_does_nothing(service: Service) -> None:
    (letter,) = await _bury(service)
    with pytest.raises(UsageError, match="no letters were named"):
        await service.retry([], actor=acting("ann"))
    with pytest.raises(UnknownLetter):
        await service.retry([letter.id, "nowhere"], actor=acting("ann"))
    assert await _queued(service) == 0


async def test_archiving_is_for_every_page_of_what_is_selected_and_for_nothing_else(service: Service) -> None:
    await _bury(service, 3, source="emails")
    chosen = await _bury_many(service, 1100)
    facts, steps = _watch(service), list[int]()
    assert await service.archive(Query(sources=("orders",)), actor=acting("ann"), progress=steps.append) == 1100
    assert sum(steps) == 1100
    assert sum(fact.count for fact in facts if isinstance(fact, LettersMoved)) == 1100
    assert await service.count(Query(states=(State.ARCHIVED,))) == len(chosen)
    assert await service.count(Query(states=(State.PENDING,))) == 3
    assert await service.archive(Query(sources=("orders",)), actor=acting("ann")) == 0


async def _bury_many(service: Service, number: int) -> list[Letter]:
    letters = [make_letter(at=service.app.clock.now()) for _ in range(number)]
    await service.app.store.letters.record(letters)
    return letters


async def test_purging_deletes_what_is_selected_and_not_on_its_way(service: Service) -> None:
    await _bury_many(service, 600)
    (busy,) = await _bury(service, state=State.REPLAYING)
    (other,) = await _bury(service, source="emails")
    facts, steps = _watch(service), list[int]()
    assert await service.purge(Query(sources=("orders",)), actor=acting("ann"), progress=steps.append) == 600
    assert sum(steps) == 600
    assert {one.id for one in (await service.letters(ALL)).letters} == {busy.id, other.id}
    assert [(fact.count, fact.why) for fact in facts if isinstance(fact, LettersPruned)] == [(600, "purged by ann")]


async def test_purging_everything_has_to_be_said_in_words(service: Service) -> None:
    await _bury(service, 3)
    with pytest.raises(UsageError, match="say which to purge"):
        await service.purge(ALL, actor=acting("ann"))
    assert await service.count(ALL) == 3


async def test_replaying_everything_has_to_be_said_in_words(service: Service) -> None:
    await _bury(service, 3)
    with pytest.raises(UsageError, match="say which to replay"):
        await service.replay(ALL, actor=acting("ann"))
    assert (await service.replay(ALL, actor=acting("ann"), every=True)).total == 3


async def _exported(service: Service, query: Query = ALL) -> list[bytes]:
    return [chunk async for chunk in service.export(query)]


async def test_what_is_exported_is_imported_elsewhere_to_the_byte(service: Service) -> None:
    letters = await _bury(service, 3, body=bytes(range(256)), headers=(("h", b"\xff"),))
    lines = b"".join(await _exported(service)).splitlines()
    async with Redrive(transport="memory://", store="memory://", clock=ManualClock()) as other:
        elsewhere = Service(other)
        assert await elsewhere.import_letters(lines, actor=acting("bob"), name="backup.jsonl") == 3
        assert [await elsewhere.find(letter.id) for letter in letters] == letters
        assert b"".join(await _exported(elsewhere)) == b"".join(await _exported(service))


async def test_importing_twice_changes_nothing(service: Service) -> None:
    letters = await _bury(service, 3)
    lines = b"".join(await _exported(service)).splitlines()
    await service.archive(ALL, actor=acting("ann"), every=True)
    assert await service.import_letters(lines, actor=acting("ann")) == 3
    assert await service.count(ALL) == 3
    assert await service.count(Query(states=(State.ARCHIVED,))) == len(letters)


async def test_what_was_on_its_way_where_it_was_exported_waits_where_it_is_imported(service: Service) -> None:
    now = service.app.clock.now()
    (letter,) = await _bury(service, state=State.RETRYING, owner="them", lease_until=now + timedelta(hours=1))
    lines = b"".join(await _exported(service)).splitlines()
    async with Redrive(transport="memory://", store="memory://", clock=ManualClock()) as other:
        elsewhere = Service(other)
        await elsewhere.import_letters(lines, actor=acting("bob"))
        found = await elsewhere.find(letter.id)
        assert (found.state, found.owner, found.lease_until) == (State.PENDING, None, None)
        assert (await elsewhere.retry([letter.id], actor=acting("bob"))).entries == {EntryStatus.SENT: 1}


async def test_an_export_comes_a_page_at_a_time_oldest_first(service: Service) -> None:
    """Memory stays flat, however many there are."""
    await _bury_many(service, 1200)
    chunks = await _exported(service)
    assert len(chunks) == 3
    assert max(chunk.count(b"\n") for chunk in chunks) <= 500
    await _bury(service, 1, source="emails")
    assert b"".join(await _exported(service, Query(sources=("emails",)))).count(b"\n") == 1


async def test_an_import_that_meets_a_broken_line_names_it(service: Service) -> None:
    (letter,) = await _bury(service)
    lines = [*b"".join(await _exported(service)).splitlines(), b"broken"]
    with pytest.raises(UsageError, match=r"line 2 of backup\.jsonl"):
        await service.import_letters(lines, actor=acting("ann"), name="backup.jsonl")
    assert await service.find(letter.id) == letter


async def test_many_letters_are_imported_in_batches(service: Service) -> None:
    letters = await _bury_many(service, 1200)
    lines = b"".join(await _exported(service)).splitlines()
    steps: list[int] = []
    async with Redrive(transport="memory://", store="memory://", clock=ManualClock()) as other:
        assert await Service(other).import_letters(lines, actor=acting("bob"), progress=steps.append) == len(letters)
    assert steps == [500, 500, 200]


async def test_whatever_is_done_is_written_to_the_audit_trail_with_who_did_it(service: Service) -> None:
    (letter, *_) = await _bury(service, 4)
    facts = _watch(service)
    replay = await service.replay(Query(ids=(letter.id,)), actor=acting("ann"))
    await service.cancel_replay(replay.id, actor=acting("bob"))
    await service.retry([letter.id], actor=acting("cid"))
    await service.archive(Query(sources=("orders",)), actor=acting("dan"))
    await service.import_letters([], actor=acting("eve"), name="backup.jsonl")
    await service.purge(Query(states=(State.ARCHIVED,)), actor=acting("fay"))
    trail = await service.audit()
    done = [(one["actor"], one["action"]) for one in reversed(trail)]
    assert done == [
        ("ann", "replay"),
        ("bob", "cancel"),
        ("cid", "replay"),
        ("dan", "archive"),
        ("eve", "import"),
        ("fay", "purge"),
    ]
    assert all(one["at"] and one["detail"] for one in trail)
    assert [(fact.actor, fact.action) for fact in facts if isinstance(fact, Acted)] == done
    assert len(await service.audit(limit=2)) == 2


async def test_looking_is_not_written_to_the_audit_trail(service: Service) -> None:
    (letter,) = await _bury(service)
    await service.letters(ALL)
    await service.letter(letter.id)
    await service.groups(ALL)
    await service.stats()
    await service.plan(ALL)
    await _exported(service)
    assert await service.audit() == []


async def test_a_replayed_letter_that_succeeds_is_resolved_for_all_to_see(service: Service) -> None:
    (letter,) = await _bury(service)
    replay = await service.replay(ALL, every=True, actor=acting("ann"))
    report = await service.run_replay(replay.id)
    assert report.entries == {EntryStatus.SENT: 1}
    await service.app.store.letters.move(
        [letter.id], expect=[State.REPLAYING], to=State.RESOLVED, now=service.app.clock.now()
    )
    assert (await service.letter(letter.id)).state is State.RESOLVED
    assert (await service.letter(letter.id)).replay == replay.id
    assert replace(await service.find(letter.id), message=letter.message).message == letter.message
