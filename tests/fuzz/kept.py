"""Letters of hostile messages in every store and shape, from collect's readers, and through export and import."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec.structs import replace

from redrive import Redrive
from redrive.collect.collector import Collector, Reader
from redrive.errors import UsageError
from redrive.forensics.query import Query
from redrive.forensics.transfer import letters_of, line_of
from redrive.model import Letter, LetterId
from redrive.registry import open_store
from redrive.stores.base import Store
from redrive.stores.recording import record_each
from redrive.testing.builders import make_failure, make_letter
from redrive.testing.hostile import Hostile
from redrive.testing.waiting import until
from redrive.transports.base import Delivery
from tests.fuzz.rows import Row
from tests.fuzz.workers import Send, by_transport

_SOURCE = "orders"


def letter_of(case: Hostile) -> Letter:
    """Its letter, with an error that repeats what was in it."""
    text = case.body[:2000].decode("utf-8", "backslashreplace")
    return make_letter(case.message(_SOURCE), make_failure(message=text, type=f"shop.{case.kind}"))


async def store_stage(
    name: str, store: str | Store, cases: Sequence[Hostile], named: Callable[[Letter], Letter] = lambda letter: letter
) -> Row:
    """Each letter comes back as it was recorded."""
    opened = open_store(store) if isinstance(store, str) else store
    letters = list({letter.id: letter for letter in map(named, map(letter_of, cases))}.values())
    lost, stops, notes = 0, 0, list[str]()
    try:
        for start in range(0, len(letters), 100):
            batch = letters[start : start + 100]
            try:
                refused = await record_each(opened.letters, batch)
            except Exception as error:
                stops += 1
                notes.append(f"record: {type(error).__name__}: {error}"[:200])
                continue
            notes += [f"{id}: {type(error).__name__}: {error}"[:200] for id, error in refused.items()]
            for letter in batch:
                lost += await _differs(opened, letter, notes)
        await opened.letters.groups(Query(), limit=50)
        await opened.letters.search(Query(text="hunter2"), limit=50)
    finally:
        await opened.aclose()
    return Row(f"store {name}", len(letters), stops, lost, tuple(notes[:5]))


async def _differs(store: Store, letter: Letter, notes: list[str]) -> bool:
    found = await store.letters.get(letter.id)
    if found is None or replace(found, updated_at=letter.updated_at) != letter:
        notes.append(f"{letter.message.id!r} came back otherwise")
        return True
    return False


async def collect_stage(
    name: str,
    read: Reader,
    cases: Sequence[Hostile],
    *,
    url: str = "memory://",
    source: str = _SOURCE,
    send: Send = by_transport,
) -> Row:
    """Whatever the reader makes of it is in the store."""
    app = Redrive(transport=url, store="memory://")
    made: list[LetterId] = []

    def noted(delivery: Delivery, now: datetime) -> Letter | None:
        letter = read(delivery, now)
        if letter is not None:
            made.append(letter.id)
        return letter

    async with app:
        sent = await send(app, cases)
        collector = Collector(
            app.transport(), source, noted, app.store, events=app.events, clock=app.clock, lease=timedelta(minutes=1)
        )
        running = asyncio.create_task(collector.run())
        with suppress(AssertionError):  # what is missing is counted
            await until(lambda: running.done() or collector.collected >= sent, timeout=60 + sent / 50)
        collector.stop()
        await asyncio.wait([running], timeout=60)
        if error := running.exception():
            return Row(f"collect {name}", len(cases), 1, 0, (f"{type(error).__name__}: {error}"[:200],))
        there = [await app.store.letters.get(id) is not None for id in made]
        stumbles = sent - len(made)
        notes = (f"{stumbles} made the reader raise, and are letters all the same",) if stumbles else ()
        total = await app.store.letters.count(Query())
        return Row(
            f"collect {name}", len(cases), 0, there.count(False) + max(len({*made}) + stumbles - total, 0), notes
        )


def transfer_stage(cases: Sequence[Hostile]) -> Row:
    """A line is the letter again; a line that is none is named as such, and nothing else happens."""
    lost, stops, notes = 0, 0, list[str]()
    for case in cases:
        letter = letter_of(case)
        lost += list(letters_of([line_of(letter)])) != [letter]
        try:
            list(letters_of(case.body.splitlines() or [case.body]))
        except UsageError:
            continue
        except Exception as error:
            stops += 1
            notes.append(f"{case.kind}: {type(error).__name__}: {error}"[:200])
    return Row("export and import", len(cases), stops, lost, tuple(notes[:5]))
