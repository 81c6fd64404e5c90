"""Open letters are entries of a plain sorted set: whoever knows no Redrive can read it, count it, and take one out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from redrive.errors import ConfigError
from redrive.forensics.query import Query
from redrive.forensics.transfer import letters_of
from redrive.model import Letter, State
from redrive.stores.base import Store
from redrive.stores.redis import RedisStore
from redrive.telemetry.events import Event, Events, LettersPruned
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START, ManualClock
from redrive.testing.stores import corpus
from redrive.upkeep.prune import Retention, prune
from tests.conformance.test_redis_store import JobShape, RedisBackend
from tests.servers.redis import Redis

ALL = Query()
LATER = START + timedelta(hours=1)
BODY = b'{"to": "ann@example.com",  "n": 1.0}'


class Plain:
    """Redis as a person with redis-cli sees it."""

    def __init__(self, backend: RedisBackend) -> None:
        self.key = f"{backend.name}:dlq"
        self.command = backend.link.command

    async def entries(self) -> list[bytes]:
        found: list[bytes] = await self.command("ZRANGE", self.key, 0, -1)
        return found

    async def size(self) -> int:
        return int(await self.command("ZCARD", self.key))


@pytest_asyncio.fixture
async def backend(redis_server: Redis) -> AsyncIterator[RedisBackend]:
    backend = RedisBackend(redis_server.url, JobShape())
    yield backend
    await backend.aclose()


@pytest_asyncio.fixture
async def store(backend: RedisBackend) -> AsyncIterator[Store]:
    store = await backend.open()
    yield store
    await store.aclose()


@pytest.fixture
def plain(backend: RedisBackend) -> Plain:
    return Plain(backend)


def _letters(number: int) -> list[Letter]:
    return [make_letter(make_message(id=f"job-{n}", body=BODY), at=START) for n in range(number)]


async def test_an_entry_has_the_fields_of_its_contract_and_nothing_else(store: Store, plain: Plain) -> None:
    [letter] = _letters(1)
    await store.letters.record([letter])
    assert await plain.entries() == [JobShape().encode(letter)]
    assert msgspec.json.decode((await plain.entries())[0]).keys() == {"job", "queue", "reason", "data"}
    assert await store.letters.get(letter.id) == letter, "to the byte, spaces and all"


async def test_a_body_is_kept_once(store: Store, plain: Plain, backend: RedisBackend) -> None:
    body = msgspec.json.encode({"text": "x" * 50_000})
    await store.letters.record([make_letter(make_message(body=body))])
    documents = f"{{{plain.key}}}:letters:documents"
    assert await plain.command("MEMORY", "USAGE", documents) < 2000


async def test_the_score_is_the_time_and_no_two_are_the_same(store: Store, plain: Plain) -> None:
    letters = _letters(3000)  # more than a millisecond has room for
    await store.letters.record(letters)
    found = await plain.command("ZRANGE", plain.key, 0, -1, "WITHSCORES")
    scores = [float(score) for score in found[1::2]]
    assert len(scores) == len(set(scores)) == 3000
    at = START.timestamp() * 1000
    assert at <= min(scores) < max(scores) < at + 100
    for letter in (letters[0], letters[1500], letters[-1]):
        assert await store.letters.get(letter.id) == letter


async def test_an_entry_leaves_with_its_letter_and_comes_back_with_it(store: Store, plain: Plain) -> None:
    letters = _letters(3)
    await store.letters.record(letters)
    first, second = letters[0].id, letters[1].id
    await store.letters.move([first], expect=[State.PENDING], to=State.RESOLVED, now=LATER)
    await store.letters.move([second], expect=[State.PENDING], to=State.ARCHIVED, now=LATER)
    assert await plain.entries() == [JobShape().encode(letters[2])]
    for letter in letters:
        got = await store.letters.get(letter.id)
        assert got is not None
        assert got.message == letter.message
    await store.letters.move([first], expect=[State.RESOLVED], to=State.PENDING, now=LATER)
    assert sorted(await plain.entries()) == sorted(JobShape().encode(letters[n]) for n in (0, 2))
    await store.letters.prune(ALL, limit=10)
    assert await plain.size() == 0
    assert await plain.command("EXISTS", f"{{{plain.key}}}:letters:aside") == 0


async def test_a_letter_that_dies_again_has_a_new_entry(store: Store, plain: Plain) -> None:
    [letter] = _letters(1)
    await store.letters.record([letter])
    again = make_letter(letter.message, make_failure(attempt=2, at=LATER, message="another"), at=LATER)
    await store.letters.record([again])
    [entry] = await plain.entries()
    assert msgspec.json.decode(entry)["reason"] == "another"
    await store.letters.record([letter, again])
    assert await plain.entries() == [entry]


async def test_a_claim_leaves_the_entry_where_it_is(store: Store, plain: Plain) -> None:
    letters = _letters(2)
    await store.letters.record(letters)
    before = await plain.command("ZRANGE", plain.key, 0, -1, "WITHSCORES")
    taken = await store.letters.claim(ALL, to=State.RETRYING, owner="me", now=LATER, until=LATER, limit=5)
    assert [one.message.body for one in taken] == [BODY, BODY]
    assert await plain.command("ZRANGE", plain.key, 0, -1, "WITHSCORES") == before


async def test_a_letter_whose_entry_somebody_took_out_is_gone(store: Store, plain: Plain) -> None:
    letters = _letters(3)
    await store.letters.record(letters)
    await plain.command("ZREM", plain.key, JobShape().encode(letters[1]))
    assert await store.letters.get(letters[1].id) is None
    assert {one.id for one in (await store.letters.search(ALL)).letters} == {letters[0].id, letters[2].id}
    claimed = await store.letters.claim(ALL, to=State.REPLAYING, owner="me", now=LATER, until=LATER, limit=5)
    assert len(claimed) == 2
    again = replace(letters[1], failures=(make_failure(attempt=3, at=LATER),))
    await store.letters.record([again])
    assert await store.letters.get(again.id) == again, "it died again, and nothing is known of its past"
    assert await plain.size() == 3
    assert await store.letters.count(ALL) == 3


async def test_entries_that_somebody_trimmed_are_not_counted_as_letters(store: Store, plain: Plain) -> None:
    await store.letters.record(_letters(1200))
    await plain.command("ZREMRANGEBYRANK", plain.key, 0, 999)
    assert await store.letters.count(ALL) == 200
    assert sum(group.count for group in await store.letters.groups(ALL)) == 200
    assert sum(tally.count for tally in await store.letters.tallies()) == 200
    assert await plain.command("HLEN", f"{{{plain.key}}}:letters:documents") == 200


async def test_letters_with_one_and_the_same_entry_are_all_kept(store: Store, backend: RedisBackend) -> None:
    class Same(JobShape):
        def encode(self, letter: Letter) -> bytes:
            return b'{"data":' + letter.message.body + b"}"

    backend.shape = Same()
    store = await backend.open()
    letters = _letters(3)
    await store.letters.record(letters)
    assert (await store.letters.search(ALL, oldest_first=True)).letters == tuple(letters)
    await store.letters.move([letters[0].id], expect=[State.PENDING], to=State.RESOLVED, now=LATER)
    assert await store.letters.get(letters[1].id) == letters[1]
    await store.aclose()


async def test_a_full_dlq_refuses_nothing_and_forgets_nothing_silently(
    store: Store, plain: Plain, tmp_path: Path
) -> None:
    """Seven days, and at most so many: what goes is exported first, and counted."""
    clock, events, told = ManualClock(), Events(), list[Event]()
    events.subscribe(told.append)
    week = timedelta(days=7)
    letters = [
        make_letter(make_message(id=f"job-{n}", body=BODY), at=at, expires_at=at + week, state=State.EXHAUSTED)
        for n in range(1200)
        for at in (START + timedelta(seconds=n),)
    ]
    await store.letters.record(letters)
    assert await plain.size() == 1200, "over the limit, and taken all the same"
    retention = Retention(max_letters=1000, export=str(tmp_path / "trimmed.jsonl"))
    assert await prune(store, events, clock, retention) == 200
    await clock.advance(week.total_seconds() + 300)
    expired = sum(one.expires_at is not None and one.expires_at < clock.now() for one in letters[200:])
    assert await prune(store, events, clock, retention) == expired > 0
    assert await plain.size() == 1000 - expired
    with (tmp_path / "trimmed.jsonl").open("rb") as lines:
        exported = list(letters_of(lines))
    assert exported == letters[: 200 + expired]
    assert sum(event.count for event in told if isinstance(event, LettersPruned)) == 200 + expired


async def test_nothing_is_left_of_letters_that_are_gone(store: Store, backend: RedisBackend, plain: Plain) -> None:
    letters = [replace(one, state=State.PENDING) for one in corpus(60)]
    await store.letters.record(letters)
    await store.letters.claim(ALL, to=State.RETRYING, owner="me", now=LATER, until=LATER, limit=30)
    await store.letters.move([one.id for one in letters], expect=list(State), to=State.RESOLVED, now=LATER)
    assert len(await store.letters.prune(ALL, limit=100)) == 60
    left = {key.rpartition(b":")[2] for key in await plain.command("KEYS", f"*{backend.name}*")}
    assert left == {b"about", b"seq", b"counted"}, "counts over time outlive their letters"


async def test_a_store_with_entries_is_not_opened_without(store: Store, backend: RedisBackend, plain: Plain) -> None:
    await store.letters.record(_letters(1))
    other = RedisStore(f"{backend.server}?prefix={plain.key}")
    with pytest.raises(ConfigError, match="keeps its entries at"):
        await other.letters.count(ALL)
    await other.aclose()


@pytest.mark.parametrize("entries", ["", "{x}"])
def test_a_key_that_cannot_hold_entries(entries: str) -> None:
    with pytest.raises(ConfigError, match="entries="):
        RedisStore("redis://localhost", shape=JobShape(), entries=entries)


def test_entries_need_a_shape() -> None:
    with pytest.raises(ConfigError, match="together"):
        RedisStore("redis://localhost", entries="dlq")


@pytest.mark.parametrize("prefix", ["\udcff", "*", "?", "[a-z]", "\\", "^"])
async def test_the_beginning_of_an_id_is_no_pattern(store: Store, prefix: str) -> None:
    await store.letters.record(_letters(3))
    assert await store.letters.count(Query(id_prefix=prefix)) == 0
