"""Every act is in the trail before it is done; what only its author has waits for the same again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from redrive import Redrive
from redrive.access.approvals import NeedsApproval
from redrive.access.trail import Phase, Said
from redrive.config.settings import Access, Settings
from redrive.errors import StoreUnavailable, UsageError
from redrive.flow.signing import KIND
from redrive.forensics.query import Query
from redrive.repair.process import Script
from redrive.repair.spool import Spool
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.actors import acting

pytestmark = pytest.mark.asyncio


def _service(access: Access | None = None) -> Service:
    return Service(Redrive(settings=Settings(store="memory://", transports={}, access=access or Access())))


async def test_an_act_whose_process_died_is_shown_as_begun() -> None:
    service = _service()
    await service.write(acting("ann"), "purge", Phase.BEGAN, "all of it")
    await service.write(acting("bob"), "archive", Phase.DONE, "one")
    [line] = [line for line in await service.audit() if line["action"] == "purge"]
    assert (line["outcome"], line["detail"]) == ("began", "all of it")


async def test_an_act_that_ended_on_a_newer_page_has_not_just_begun() -> None:
    service = _service()
    began = await service.write(acting("ann"), "purge", Phase.BEGAN, "all of it")
    orphan = await service.write(acting("ann"), "archive", Phase.BEGAN, "its process died")
    middle = await service.write(acting("bob"), "edit", Phase.DONE, "one")
    await service.write(acting("ann"), "purge", Phase.DONE, "all of it", of=began)
    assert [line["seq"] for line in await service.audit(before=middle)] == [orphan]
    assert [line["seq"] for line in await service.audit()] == [middle + 1, middle, orphan]


async def test_the_act_is_written_before_it_is_done_and_its_refusal_after_that() -> None:
    service = _service()
    with pytest.raises(UsageError):
        await service.resolve("nothing", actor=acting("ann"))
    told = [(line.seq, line.action, line.outcome, line.of) async for line in service.trail.lines(ascending=True)]
    assert told[1:] == [(2, "resolve", Phase.BEGAN, None), (3, "resolve", Phase.REFUSED, 2)]


async def test_keys_are_rotated_behind_their_line() -> None:
    service = _service()
    assert await service.rotate_keys(actor=acting("ann")) == 2
    told = [(line.action, line.outcome, line.of) async for line in service.trail.lines(ascending=True)]
    assert told[1:] == [("keys rotate", Phase.BEGAN, None), ("keys rotate", Phase.DONE, 2)]


async def test_no_key_is_made_that_cannot_be_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    service = _service()

    async def away(line: Said) -> int:
        raise StoreUnavailable("memory", "disk is full")

    monkeypatch.setattr(service.trail, "append", away)
    with pytest.raises(StoreUnavailable):
        await service.rotate_keys(actor=acting("ann"))
    assert await service.app.store.documents.list(KIND) == []


async def test_an_export_that_nobody_reads_to_its_end_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    service, ann = _service(), acting("ann")
    await service.app.store.letters.record([make_letter(make_message(), make_failure())])
    reading = service.export(Query(), actor=ann)
    await anext(reading)
    await cast("AsyncGenerator[bytes]", reading).aclose()

    async def away(*asked: object, **more: object) -> None:
        raise StoreUnavailable("memory", "disk is full")

    monkeypatch.setattr(service.app.store.letters, "search", away)
    with pytest.raises(StoreUnavailable):
        await anext(service.export(Query(), actor=ann))
    told = [(line["action"], line["outcome"], line["detail"]) for line in await service.audit()]
    assert told == [
        ("export", "failed", "ended after 0 letters of {}"),
        ("export", "interrupted", "ended after 1 letter of {}"),
    ]


async def test_whole_letters_are_given_to_code_behind_a_line(tmp_path: Path) -> None:
    service, ann = _service(), acting("ann")
    await service.app.store.letters.record([make_letter(make_message(), make_failure())])
    whole = service.whole_letters(Query(sources=("orders",)), actor=ann)
    await anext(whole)
    (tmp_path / "fix.py").write_text("def repair(message):\n    return None\n")
    with Spool() as spool:
        async with Script(tmp_path / "fix.py", timeout=timedelta(seconds=60), memory=1 << 30) as script:
            await service.repairs.propose(Query(sources=("mail",)), script, spool, actor=ann)
    told = [(line["action"], line["actor"], line["detail"]) for line in await service.audit()]
    assert told == [
        ("export", "ann", f'unmasked, for a script or a handler: {{"sources":["{source}"]}}')
        for source in ("mail", "orders")
    ]


async def test_an_edit_is_approved_as_exactly_what_it_writes() -> None:
    service = _service(Access(approve_over=0))
    letter = make_letter(make_message(body=b"1"), make_failure())
    await service.app.store.letters.record([letter])
    ann, bob = acting("ann"), replace(acting("bob"), id="bob")
    with pytest.raises(NeedsApproval) as waits:
        await service.edits.edit(letter, actor=ann, body=b"2", why="typo")
    with pytest.raises(NeedsApproval) as same:
        await service.edits.edit(letter, actor=ann, body=b"2", why="typo")
    assert same.value.approval.id == waits.value.approval.id
    plain = sha256(sha256(msgspec.msgpack.encode((letter.id, 0, b"2", letter.message.headers))).digest()).hexdigest()
    assert waits.value.approval.digest != plain, "whoever approves tries no values of a short secret on it"
    await service.four_eyes.approve(waits.value.approval.id, actor=bob)
    with pytest.raises(NeedsApproval):
        await service.edits.edit(letter, actor=ann, body=b"3", why="something else")
    edited = await service.edits.edit(letter, actor=ann, body=b"2", why="typo")
    assert edited.message.body == b"2"
    with pytest.raises(NeedsApproval):
        await service.edits.edit(edited, actor=ann, body=b"1", why="once more")
    with pytest.raises(NeedsApproval) as undoing:
        await service.edits.undo(edited, actor=ann)
    assert undoing.value.approval.what == f"edit of {letter.id}, version 1"
    await service.four_eyes.approve(undoing.value.approval.id, actor=bob)
    assert (await service.edits.undo(edited, actor=ann)).message.body == b"1"
