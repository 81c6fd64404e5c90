"""Letters that are edited, undone, repaired and taken back, as the service does it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from redrive import Policy, Redrive
from redrive.config.settings import Settings
from redrive.errors import ChangedMeanwhile, NotFound, UsageError
from redrive.forensics.query import Query
from redrive.model import Edit, Letter, Revision, State
from redrive.repair.process import Script
from redrive.repair.spool import Spool
from redrive.service import Service
from redrive.service.repairs import Findings, Repair, RepairState
from redrive.stores.base import EntryStatus
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from redrive.worker import Worker
from tests.actors import acting

ALL = Query(sources=("orders",))
LETTERS = int(os.environ.get("REDRIVE_REPAIRED", "300"))


class Order(msgspec.Struct):
    total: int


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/redrive.db"
    settings = Settings(store=url, transports={"default": url}, worker="w", body_limit=1 << 20)
    async with Redrive(settings=settings, clock=ManualClock()) as app:
        app.handler("orders", policy=Policy(attempts=1))(charge)
        yield Service(app)


async def charge(order: Order) -> None:
    if order.total < 0:
        raise ValueError(f"{order.total} is less than nothing")


async def bury(service: Service, body: bytes = b'{"total":"12"}', number: int = 1, **changes: Any) -> list[Letter]:
    letters = [make_letter(make_message(source="orders", body=body), **changes) for _ in range(number)]
    await service.app.store.letters.record(letters)
    return letters


async def test_an_edit_is_kept_shown_audited_and_undone(service: Service) -> None:
    [letter] = await bury(service)
    new = await service.edits.edit(letter, actor=acting("ann"), body=b'{"total":12}', why="a number")
    assert await service.find(letter.id) == new
    shown = await service.letter(letter.id)
    assert (shown.version, [version.number for version in shown.versions]) == (1, [0, 1])
    assert '-  "total": "12"' in shown.versions[1].diff
    assert shown.versions[1].edit == Edit(by="ann", at=service.app.clock.now(), why="a number")
    back = await service.edits.undo(new, actor=acting("bob"))
    assert (back.message.body, back.version) == (letter.message.body, 2)
    assert [entry["action"] for entry in await service.audit()] == ["undo", "edit"]


async def test_undo_goes_back_step_by_step_and_no_further_than_the_first(service: Service) -> None:
    [letter] = await bury(service)
    for total in (1, 2, 3):
        letter = await service.edits.edit(letter, actor=acting("ann"), body=b'{"total":%d}' % total)
    bodies = []
    for _ in range(3):
        letter = await service.edits.undo(letter, actor=acting("ann"))
        bodies.append(letter.message.body)
    assert bodies == [b'{"total":2}', b'{"total":1}', b'{"total":"12"}']
    with pytest.raises(UsageError, match="as it came: there is nothing left to undo"):
        await service.edits.undo(letter, actor=acting("ann"))
    letter = await service.edits.undo(letter, actor=acting("ann"), to=3)
    assert letter.message.body == b'{"total":3}'
    with pytest.raises(UsageError, match="has no version 99: it has 0 to 7"):
        await service.edits.undo(letter, actor=acting("ann"), to=99)


async def test_of_two_who_edit_one_letter_the_second_is_told(service: Service) -> None:
    [letter] = await bury(service)
    await service.edits.edit(letter, actor=acting("ann"), body=b'{"total":1}')
    with pytest.raises(ChangedMeanwhile, match="edited meanwhile by ann: you changed version 0, and it has version 1"):
        await service.edits.edit(letter, actor=acting("bob"), body=b'{"total":2}')
    assert (await service.find(letter.id)).message.body == b'{"total":1}'
    with pytest.raises(ChangedMeanwhile, match="edited meanwhile"):
        await service.edits.undo(letter, actor=acting("bob"), expect=1)


@pytest.mark.parametrize("state", [State.RETRYING, State.REPLAYING, State.RESOLVED])
async def test_what_is_on_its_way_or_resolved_is_not_edited(service: Service, state: State) -> None:
    [letter] = await bury(service, state=state)
    with pytest.raises(ChangedMeanwhile, match=f"is {state}"):
        await service.edits.edit(letter, actor=acting("ann"), body=b'{"total":1}')
    with pytest.raises(ChangedMeanwhile, match=f"is {state}"):  # and if it was read before it went
        await service.edits.edit(replace(letter, state=State.PENDING), actor=acting("ann"), body=b'{"total":1}')


async def test_what_no_handler_could_decode_is_refused_with_the_reason(service: Service) -> None:
    [letter] = await bury(service)
    with pytest.raises(UsageError, match=r"charge cannot decode it: ValidationError: Expected `int`, got `str`"):
        await service.edits.edit(letter, actor=acting("ann"), body=b'{"total":"twelve"}')
    with pytest.raises(UsageError, match="1,048,577 bytes, over the limit of 1,048,576"):
        await service.edits.edit(letter, actor=acting("ann"), body=b"x" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match=r"nothing of .* would change"):
        await service.edits.edit(letter, actor=acting("ann"), body=letter.message.body)
    assert (await service.find(letter.id)).version == 0


async def test_the_newest_version_is_sent_and_the_ledger_says_which(service: Service) -> None:
    [letter] = await bury(service)
    await service.edits.edit(letter, actor=acting("ann"), body=b'{"total":12}', headers=(("x", b"1"),))
    report = await service.retry([letter.id], actor=acting("ann"))
    [entry], _ = await service.replay_entries(report.replay.id)
    assert (entry.status, entry.note) == (EntryStatus.SENT, "version 1")
    [delivery] = await service.app.transport().receive("orders", 1)
    assert (delivery.message.body, delivery.message.header("x")) == (b'{"total":12}', b"1")
    assert delivery.message.header("redrive-version") == b"1"


async def test_an_edited_letter_that_dies_again_says_which_version_died(service: Service) -> None:
    [letter] = await bury(service)
    await service.edits.edit(letter, actor=acting("ann"), body=b'{"total":-1}')
    report = await service.retry([letter.id], actor=acting("ann"))
    await _work(service)
    again = await service.find(letter.id)
    assert (again.state, again.version, again.message.body) == (State.EXHAUSTED, 1, b'{"total":-1}')
    assert [failure.edition for failure in again.failures][-1] == 1
    assert {failure.edition for failure in again.failures} == {None, 1}
    [entry], _ = await service.replay_entries(report.replay.id)
    assert entry.status is EntryStatus.FAILED
    assert entry.note.startswith("version 1; ValueError")
    assert again.message.header("redrive-version") is None, "what is kept is the message, without our headers"


async def _work(service: Service) -> None:
    """Let a worker handle what is queued. The clock stands still: no lease ends meanwhile."""
    worker = Worker(service.app)
    running = asyncio.create_task(worker.run())

    async def is_done() -> bool:
        return (await service.app.store.letters.count(Query(states=(State.EXHAUSTED,)))) == 1

    await until(is_done)
    worker.stop()
    await running


async def test_what_would_not_decode_is_not_sent(service: Service) -> None:
    [letter] = await bury(service)
    await service.app.store.versions.edit([Revision(letter.id, 0, b"none", (), Edit(by="x", at=letter.created_at))])
    report = await service.retry([letter.id], actor=acting("ann"))
    [entry], _ = await service.replay_entries(report.replay.id)
    assert entry.status is EntryStatus.SKIPPED
    assert "cannot decode it" in entry.note
    assert (await service.find(letter.id)).state is State.PENDING


async def test_letters_travel_with_their_versions(service: Service, tmp_path: Path) -> None:
    [letter] = await bury(service)
    new = await service.edits.edit(letter, actor=acting("ann"), body=b'{"total":12}')
    lines = [line async for some in service.export(ALL) for line in some.splitlines(keepends=True)]
    settings = Settings(store="memory://", transports={"default": "memory://"})
    async with Redrive(settings=settings, clock=ManualClock()) as app:
        other = Service(app)
        for _ in range(2):
            await other.import_letters(lines, actor=acting("ann"))
        assert await other.find(letter.id) == new
        back = await other.edits.undo(new, actor=acting("bob"))
        assert back.message == letter.message
        await other.import_letters(lines, actor=acting("ann"))
        assert await other.find(letter.id) == back, "an import does not undo what was done here"


async def test_unarchive_takes_letters_back_to_what_they_were(service: Service) -> None:
    before = {}
    for state in (State.PENDING, State.EXHAUSTED, State.SENT, State.RESOLVED, State.REPLAYING):
        [letter] = await bury(service, state=state)
        before[letter.id] = State.EXHAUSTED if state is State.REPLAYING else state
    assert await service.archive(ALL, actor=acting("ann")) == 5
    assert await service.unarchive(ALL, actor=acting("ann")) == 5
    assert {id: (await service.find(id)).state for id in before} == before
    assert await service.unarchive(ALL, actor=acting("ann")) == 0
    assert (await service.audit())[-2]["action"] == "unarchive"


async def test_everything_has_to_be_said(service: Service) -> None:
    await bury(service)
    for act in (service.archive, service.unarchive, service.purge):
        with pytest.raises(UsageError, match="an empty query selects every letter"):
            await act(Query(), actor=acting("ann"))
    assert await service.archive(Query(), actor=acting("ann"), every=True) == 1
    assert await service.unarchive(Query(), actor=acting("ann"), every=True) == 1
    assert await service.purge(Query(), actor=acting("ann"), every=True) == 1


# -- repairs ---------------------------------------------------------------------------------------------------------

FIX = """def repair(message):
    order = message.json
    if order["total"] == "bad":
        raise ValueError("bad")
    if isinstance(order["total"], int):
        return None
    return {**order, "total": int(order["total"]) if order["total"] != "no" else "no number"}
"""


async def propose(service: Service, tmp_path: Path, spool: Spool, text: str = FIX) -> Findings:
    file = tmp_path / "fix.py"
    file.write_text(text)
    async with Script(file, timeout=timedelta(seconds=30), memory=512 << 20) as script:
        return await service.repairs.propose(ALL, script, spool, actor=acting("ann"))


async def apply(service: Service, tmp_path: Path) -> Repair:
    with Spool() as spool:
        await propose(service, tmp_path, spool)
        return await service.repairs.apply(spool, script="fix.py", actor=acting("ann"))


async def test_a_dry_run_counts_shows_and_changes_nothing(service: Service, tmp_path: Path) -> None:
    await bury(service, number=5)
    await bury(service, b'{"total":1}', number=2)
    bad = await bury(service, b'{"total":"bad"}', number=3)
    odd = await bury(service, b'{"total":"no"}')
    with Spool() as spool:
        found = await propose(service, tmp_path, spool)
    assert (found.total, found.changed, found.unchanged) == (11, 5, 2)
    assert list(found.failed.values()) == [3, 1]
    assert next(iter(found.failed)) == "fix.py:4: ValueError: bad"
    assert "cannot decode it" in list(found.failed)[1]
    assert list(found.failed_at.values()) == [bad[0].id, odd[0].id]
    assert len(found.examples) == 3
    assert '+  "total": 12' in found.examples[0].diff
    page = await service.app.store.letters.search(ALL, limit=100)
    assert {letter.version for letter in page.letters} == {0}


async def test_a_repair_of_many_letters_is_undone_byte_for_byte(service: Service, tmp_path: Path) -> None:
    buried = [await bury(service, b'{"total": "%d"}' % number) for number in range(LETTERS)]
    before = {letter.id: letter.message for [letter] in buried}
    done = await apply(service, tmp_path)
    assert (done.changed, done.skipped, done.state) == (LETTERS, {}, RepairState.APPLIED)
    changed = [id async for id in service.repairs.changed(done.id)]
    assert set(changed) == set(before)
    assert (await service.find(buried[7][0].id)).message.body == b'{"total": 7}'
    undone = await service.repairs.undo(done.id, actor=acting("bob"))
    assert (undone.restored, undone.skipped) == (LETTERS, {})
    for id, message in before.items():
        assert (await service.find(id)).message == message
    again = await service.repairs.undo(done.id, actor=acting("bob"))
    assert (again.restored, again.skipped) == (0, {})
    assert (await service.repairs.get(done.id)).state is RepairState.UNDONE
    assert [item.id for item in await service.repairs.all()] == [done.id]


async def test_what_changed_since_the_dry_run_is_skipped_with_the_reason(service: Service, tmp_path: Path) -> None:
    kept, edited, gone, flown = await bury(service, number=4)
    with Spool() as spool:
        await propose(service, tmp_path, spool)
        await service.edits.edit(edited, actor=acting("bob"), body=b'{"total":7}')
        await service.purge(Query(ids=(gone.id,)), actor=acting("bob"))
        now = service.app.clock.now()
        await service.app.store.letters.move([flown.id], expect=[State.PENDING], to=State.REPLAYING, now=now)
        done = await service.repairs.apply(spool, script="fix.py", actor=acting("ann"))
    assert done.changed == 1
    expected = {"edited since the dry run": 1, "deleted since the dry run": 1, "replaying since the dry run": 1}
    assert done.skipped == expected
    assert (await service.find(edited.id)).message.body == b'{"total":7}'
    assert (await service.find(kept.id)).message.body == b'{"total":12}'


async def test_an_undo_leaves_what_was_edited_since_or_is_on_its_way(service: Service, tmp_path: Path) -> None:
    restored, edited, flown = await bury(service, number=3)
    done = await apply(service, tmp_path)
    await service.edits.edit(await service.find(edited.id), actor=acting("bob"), body=b'{"total":7}')
    now = service.app.clock.now()
    await service.app.store.letters.move([flown.id], expect=[State.PENDING], to=State.REPLAYING, now=now)
    undone = await service.repairs.undo(done.id, actor=acting("bob"))
    assert (undone.restored, undone.skipped) == (1, {"edited since": 1, "replaying now": 1})
    assert (await service.find(restored.id)).message == restored.message
    await service.app.store.letters.move([flown.id], expect=[State.REPLAYING], to=State.EXHAUSTED, now=now)
    again = await service.repairs.undo(done.id, actor=acting("bob"))
    assert (again.restored, again.skipped) == (1, {"edited since": 1})


async def test_a_repair_nobody_made_is_named(service: Service) -> None:
    with pytest.raises(NotFound, match="there is no repair 'x'"):
        await service.repairs.undo("x", actor=acting("ann"))
