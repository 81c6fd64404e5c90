"""Tickets that MongoDB, or the collection's owners, make it hard to keep: each is kept, and holds up no other."""

from __future__ import annotations

import json

import pytest

from redrive.forensics.query import Query
from redrive.model import Letter
from tests.systems.tickets.world import World, failing


async def letter_of(world: World, number: int | str) -> Letter:
    """The letter of a ticket, as the worker's store has it."""
    async with world.worker(failing) as worker:
        [letter] = (await worker.app.store.letters.search(Query(message_ids=(world.id(number),)))).letters
    return letter


async def bury(world: World, *numbers: int | str) -> None:
    async with world.worker(failing):
        await world.main.until_committed(len(numbers))


async def test_a_document_of_somebody_else_under_the_same_ticket_id_stops_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    strange = {"ticket_id": world.id(1), "owner": "somebody else"}
    world.documents.insert_one(strange)
    world.send(1, 2)
    await bury(world, 1, 2)
    assert await world.collected() == 2
    assert world.documents.find_one({"_id": strange["_id"]}) == strange
    kept = await letter_of(world, 1)
    assert kept.message.body == world.ticket(1)
    assert world.documents.find_one({"_id": kept.id})["ticket_id"] == f"{world.id(1)} ({kept.id})"
    assert any("another document" in record.message for record in caplog.records)


async def test_a_ticket_that_dies_again_beside_such_a_document_rejoins_its_letter(world: World) -> None:
    world.documents.insert_one({"ticket_id": world.id(1)})
    world.send(1)
    await bury(world, 1)
    await world.collected()
    world.send(1)
    await bury(world, 1, 1)
    await world.collected()
    assert len((await letter_of(world, 1)).failures) > 3
    assert world.documents.count_documents({}) == 2


async def test_a_ticket_that_is_too_large_as_bson_is_kept_without_its_own_fields(world: World) -> None:
    """Small integers take two bytes each in JSON, and fourteen in BSON."""
    body = json.dumps({"ticket_id": world.id(1), "task_type": "BUILD", "numbers": [1] * 1_500_000}).encode()
    small = body.replace(b" ", b"")
    world.main.produce((b"k", small), (b"l", world.ticket(2)))
    await bury(world, 1, 2)
    await world.collected()
    document = world.documents.find_one({"ticket_id": world.id(1)})
    assert (document["task_type"], document["dlq_metadata"]["retry_count"]) == ("BUILD", 3)
    assert "numbers" not in document
    assert "16 MB" in document["fields_left_out"]
    assert (await letter_of(world, 1)).message.body == small
    assert world.documents.count_documents({}) == 2


async def test_a_ticket_with_a_header_like_ours_is_no_stub(world: World) -> None:
    headers = [("redrive-stub", b"x"), ("redrive-dead", b"{}"), ("redrive-dlq-reason", b"mine"), ("own", b"1")]
    world.main.produce((b"k", world.ticket(1)), headers=headers)
    await bury(world, 1)
    assert await world.collected() == 1
    assert list((await letter_of(world, 1)).message.headers) == headers


async def test_a_record_of_others_with_such_a_header_is_a_letter_too(world: World) -> None:
    world.dead.produce((b"k", world.ticket(1)), headers=[("redrive-stub", b"x")])
    assert await world.collected() == 1


@pytest.mark.parametrize("id", [17, -(2**63), 2**63 - 1, 2**64])
async def test_an_integer_id_stays_an_integer(world: World, id: int) -> None:
    body = json.dumps({"ticket_id": id, "task_type": "BUILD"}).encode()
    world.main.produce((b"k", body))
    await bury(world, 1)
    assert await world.collected() == 1
    [document] = world.documents.find()
    assert document["ticket_id"] == (id if id < 2**63 else str(id))


@pytest.mark.parametrize("deep", [997, 100_000])
async def test_a_ticket_of_many_levels_is_buried_and_the_next_one_goes_on(world: World, deep: int) -> None:
    body = b'{"ticket_id":"%s","task_type":"BUILD","deep":%s}' % (world.id(1).encode(), b"[" * deep + b"]" * deep)
    world.main.produce((b"k", body), (b"l", world.ticket(2)))
    await bury(world, 1, 2)
    assert await world.collected() == 2
    async with world.worker(failing) as worker:
        found = (await worker.app.store.letters.search(Query())).letters
    assert body in [letter.message.body for letter in found]
