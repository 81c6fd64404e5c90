"""A group that is fixed in a version: deployed when every worker runs it, regressed when it dies on it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.errors import UnknownGroup, UsageError
from redrive.flow.replay import KIND as REPLAY
from redrive.forensics.marks import GroupState
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.stores.memory import MemoryStore
from redrive.telemetry.events import Event, GroupDeployed, GroupRegressed
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import ManualClock
from redrive.upkeep.fixes import Fixes
from redrive.upkeep.heartbeat import KIND as WORKER
from redrive.upkeep.heartbeat import Beat, Working
from tests.actors import acting


class World:
    """A store with letters of one group, and as many processes as a test asks for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.app = Redrive(settings=Settings(transports={"default": "memory://"}), store=self.store, clock=self.clock)
        self.service = Service(self.app)
        self.events: list[Event] = []
        self.app.events.subscribe(self.events.append)

    def fixes(self) -> Fixes:
        return Fixes(self.store, self.service.replays, self.app.events, self.clock)

    async def dies(self, version: str, *, id: str = "m", source: str = "orders", group: str = "g") -> None:
        """One more letter of the group, or one more death of it."""
        failure = make_failure(at=self.clock.now(), version=version, worker=version)
        letter = make_letter(make_message(id=id, source=source), failure, at=self.clock.now(), group=group)
        await self.store.letters.record([letter])

    async def beats(self, worker: str, version: str, *sources: str) -> None:
        beat = Beat(
            worker=worker,
            host="h",
            pid=1,
            version=version,
            redrive="0",
            started_at=self.clock.now(),
            at=self.clock.now(),
            sources=tuple(Working(source, "default", 1, 0) for source in sources or ("orders",)),
        )
        await self.store.documents.put(WORKER, worker, msgspec.to_builtins(beat))

    async def state(self) -> GroupState:
        return (await self.service.group("g")).state

    def seen(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def replays(self) -> list[str]:
        return [document.id for document in await self.store.documents.list(REPLAY)]


@pytest.fixture
async def world() -> World:
    made = World()
    await made.dies("1.4.1")
    await made.clock.advance(60)
    return made


async def test_it_is_deployed_when_every_worker_of_its_sources_runs_it(world: World) -> None:
    await world.beats("a", "v1.4.2")
    await world.beats("b", "1.4.1")
    await world.beats("elsewhere", "0.1", "emails")
    await world.service.fix("g", "1.4.2", actor=acting("me"))
    await world.fixes().cycle()
    assert (await world.service.group("g")).waits_for == ("b runs 1.4.1",)
    assert await world.state() is GroupState.FIXED
    await world.beats("b", "1.10.0")
    await world.fixes().cycle()
    assert await world.state() is GroupState.DEPLOYED
    await world.fixes().cycle()
    [told] = world.seen(GroupDeployed)  # once
    assert (told.group, told.version, told.auto, told.letters) == ("g", "1.4.2", False, 1)
    assert await world.replays() == []  # it is only proposed


async def test_two_servers_start_one_replay_of_what_was_there(world: World) -> None:
    await world.dies("1.4.1", id="second")
    await world.beats("a", "1.4.2")
    await world.service.fix("g", "1.4.2", actor=acting("me"), auto=True)
    servers = [world.fixes(), world.fixes()]
    for _ in range(3):
        await asyncio.gather(*(server.cycle() for server in servers))
    [replay] = await world.replays()
    assert (await world.service.replays.get(replay)).guard is not None  # a canary goes first
    entries, _ = await world.store.ledger.entries(replay)
    assert [entry.status for entry in entries] == [EntryStatus.SELECTED, EntryStatus.SELECTED]
    assert (await world.service.group("g")).fix.replay == replay  # type: ignore[union-attr]
    assert len(world.seen(GroupDeployed)) == 1


async def test_a_server_that_dies_between_deployed_and_its_replay_leaves_it_to_the_next(world: World) -> None:
    await world.beats("a", "1.4.2")
    await world.service.fix("g", "1.4.2", actor=acting("me"), auto=True)
    fix = (await world.service.marks.get("g")).fix
    assert fix is not None
    await world.service.marks.change_fix("g", fix.id, deployed_at=world.clock.now())  # and no further
    await world.fixes().cycle()
    assert len(await world.replays()) == 1


async def test_a_letter_that_dies_on_a_fixed_version_makes_it_regressed(world: World) -> None:
    await world.beats("a", "1.4.2")
    await world.service.fix("g", "1.4.2", actor=acting("me"))
    server = world.fixes()
    await world.clock.advance(1)
    await world.dies("1.4.1", id="late")  # of a worker that had not been replaced
    await server.cycle()
    assert await world.state() is GroupState.DEPLOYED
    await world.clock.advance(3600)
    await world.dies("1.4.3", id="again")
    await asyncio.gather(server.cycle(), world.fixes().cycle())
    view = await world.service.group("g")
    assert view.state is GroupState.REGRESSED
    [told] = world.seen(GroupRegressed)
    assert (told.group, told.version, told.died_on) == ("g", "1.4.2", "1.4.3")
    assert view.fix is not None
    assert view.fix.letter == told.letter


async def test_what_dies_again_after_its_replay_is_the_same_letter_and_a_regression(world: World) -> None:
    await world.service.fix("g", "1.4.2", actor=acting("me"))
    await world.clock.advance(1)
    await world.dies("1.4.2")  # the letter that was there before
    await world.fixes().cycle()
    assert await world.state() is GroupState.REGRESSED


async def test_what_died_on_it_before_anybody_said_so_is_no_regression(world: World) -> None:
    await world.dies("1.4.2", id="before")
    await world.clock.advance(1)
    report = await world.service.fix("g", "1.4.2", actor=acting("me"))
    assert "its last letter died on 1.4.2, which is not before 1.4.2" in report.notes
    await world.fixes().cycle()
    assert await world.state() is GroupState.FIXED


async def test_it_is_fixed_again_after_it_regressed(world: World) -> None:
    await world.service.fix("g", "1.4.2", actor=acting("me"))
    await world.clock.advance(1)
    await world.dies("1.4.2")
    await world.fixes().cycle()
    await world.clock.advance(1)
    await world.service.fix("g", "1.5", actor=acting("me"))
    await world.beats("a", "1.5")
    await world.fixes().cycle()
    assert await world.state() is GroupState.DEPLOYED


async def test_a_worker_that_is_lost_is_not_waited_for_and_a_source_without_a_worker_is(world: World) -> None:
    await world.beats("old", "1.4.1")
    await world.dies("1.4.1", id="other", source="emails")
    await world.service.fix("g", "1.4.2", actor=acting("me"))
    await world.clock.advance(60)
    await world.beats("new", "1.4.2")
    await world.fixes().cycle()
    assert (await world.service.group("g")).waits_for == ("emails has no worker",)
    await world.beats("mail", "1.4.2", "emails")
    await world.fixes().cycle()
    assert await world.state() is GroupState.DEPLOYED


async def test_what_has_no_order_is_compared_for_equality_and_that_is_said(world: World) -> None:
    await world.beats("a", "g0000001")
    report = await world.service.fix("g", "g1a2b3c4", actor=acting("me"))
    assert any("no order among versions" in note for note in report.notes)
    await world.fixes().cycle()
    assert "only the same would do" in (await world.service.group("g")).waits_for[0]
    await world.beats("a", "g1a2b3c4")
    await world.fixes().cycle()
    assert await world.state() is GroupState.DEPLOYED


async def test_a_worker_that_says_no_version_is_told_how_to(world: World) -> None:
    await world.beats("a", "")
    await world.service.fix("g", "1.4.2", actor=acting("me"))
    assert (await world.service.group("g")).waits_for == ("a says no version: give it one, as Redrive(version=…)",)


async def test_a_version_that_nobody_ever_reported_is_said(world: World) -> None:
    report = await world.service.fix("g", "14.2", actor=acting("me"))
    assert report.notes == ["no worker and no letter of this group has reported 14.2 yet: check that it is right"]


async def test_a_fix_is_undone_once(world: World) -> None:
    await world.service.fix("g", "1.4.2", actor=acting("me"))
    assert (await world.service.unfix("g", actor=acting("me"))).state is GroupState.OPEN
    with pytest.raises(UsageError, match="not fixed in any version"):
        await world.service.unfix("g", actor=acting("me"))
    await world.beats("a", "1.4.2")
    await world.fixes().cycle()
    assert world.seen(GroupDeployed) == []


async def test_auto_sends_nothing_while_nothing_waits(world: World) -> None:
    page = await world.store.letters.search(Query(), limit=10)
    await world.store.letters.move(
        [letter.id for letter in page.letters], expect=list(State), to=State.RESOLVED, now=world.clock.now()
    )
    await world.beats("a", "1.4.2")
    await world.service.fix("g", "1.4.2", actor=acting("me"), auto=True)
    for _ in range(2):
        await world.fixes().cycle()
    assert await world.replays() == []


@pytest.mark.parametrize("version", ["", "two words", "x" * 101, "1.4\n2"])
async def test_rubbish_is_no_version(world: World, version: str) -> None:
    with pytest.raises(UsageError, match="is no version"):
        await world.service.fix("g", version, actor=acting("me"))


async def test_a_group_is_named_by_the_beginning_of_its_id_if_that_is_one(world: World) -> None:
    await world.dies("1", id="x", group="abc")
    await world.dies("1", id="y", group="abd")
    assert (await world.service.group("abc")).id == "abc"
    assert (await world.service.group("abd")).id == "abd"
    with pytest.raises(UsageError, match="more than one group: abc, abd"):
        await world.service.group("ab")
    for unknown in ("zz", ""):
        with pytest.raises(UnknownGroup):
            await world.service.group(unknown)


async def test_a_muted_group_comes_back_by_itself(world: World) -> None:
    await world.dies("1", id="x", group="other")
    await world.service.mute("g", timedelta(days=2), actor=acting("me"), why="Friday")
    query = Query()
    assert [group.id for group in await world.service.groups(query, with_muted=False)] == ["other"]
    assert {group.id for group in await world.service.groups(query)} == {"g", "other"}
    assert [mark.group for mark in await world.service.muted_groups()] == ["g"]
    view = await world.service.group("g")
    assert view.mute is not None
    assert (view.state, view.mute.why) == (GroupState.MUTED, "Friday")
    await world.clock.advance(2 * 86_400 + 1)
    assert await world.state() is GroupState.OPEN
    assert {group.id for group in await world.service.groups(query, with_muted=False)} == {"g", "other"}
    assert await world.service.muted_groups() == []


async def test_as_many_groups_are_listed_as_asked_for_however_many_are_muted(world: World) -> None:
    for number in range(4):
        await world.dies("1", id=f"x{number}", group=f"other-{number}")
    await world.service.mute("g", timedelta(days=2), actor=acting("me"), why="Friday")
    assert len(await world.service.groups(Query(), limit=3, with_muted=False)) == 3


@pytest.mark.parametrize(("span", "why"), [(timedelta(), "x"), (timedelta(days=400), "x"), (timedelta(1), " ")])
async def test_a_mute_has_an_end_and_a_reason(world: World, span: timedelta, why: str) -> None:
    with pytest.raises(UsageError):
        await world.service.mute("g", span, actor=acting("me"), why=why)


async def test_a_mark_of_a_newer_version_that_cannot_be_read_stops_nobody(world: World) -> None:
    await world.store.documents.put("group", "g", {"group": 7})
    await world.fixes().cycle()
    assert await world.state() is GroupState.OPEN
