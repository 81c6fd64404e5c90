"""What answers, answers: a backend that is away is named, and everything else is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.answers import Unanswered
from redrive.config.settings import Settings
from redrive.errors import NoWayBack, StoreUnavailable, TransportUnavailable, UnknownSource
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import ManualClock
from redrive.transports.base import Depth
from redrive.transports.memory import MemoryTransport
from tests.actors import acting
from tests.unit.support import nothing

SECRET = "kafka://shop:hunter2@host"


class Away(MemoryTransport):
    """A broker that is down."""

    async def depths(self) -> dict[str, Depth]:
        raise TransportUnavailable(SECRET, "connection refused")


@pytest.fixture
def told() -> list[Unanswered]:
    return []


@pytest.fixture
async def service(tmp_path: Path, told: list[Unanswered]) -> AsyncIterator[Service]:
    """One transport that answers, one that is away, and one that cannot even be opened."""
    url = f"sqlite:///{tmp_path}/redrive.db"
    settings = Settings(store=url, transports={"default": url, "typo": "kafak://host"})
    async with Redrive(settings=settings, clock=ManualClock()) as app:
        app.use("kafka", Away(clock=app.clock, lease=timedelta(minutes=1)))
        app.handler("orders")(nothing)
        yield Service(app, unanswered=told.append)


async def bury(service: Service, count: int = 1, *, transport: str = "default", source: str = "orders") -> list[Letter]:
    at = service.app.clock.now()
    made = [
        make_letter(make_message(source=source), make_failure(at=at), at=at, transport=transport) for _ in range(count)
    ]
    await service.app.store.letters.record(made)
    return made


async def unavailable(*arguments: object, **options: object) -> None:
    raise StoreUnavailable("redrive.db", "the disk is full")


async def test_stats_count_what_answers_and_name_what_does_not(service: Service, told: list[Unanswered]) -> None:
    await bury(service, 3)
    await service.app.send("orders", b"")
    stats = await service.stats()
    assert (stats.total, stats.open) == (3, 3)
    assert [(each.source, each.queued) for each in stats.sources] == [("orders", Depth(1, 0, 0))]
    assert [each.backend for each in stats.unanswered] == ["transports.typo", "transports.kafka"]
    assert "kafak" in stats.unanswered[0].why
    assert "connection refused" in stats.unanswered[1].why
    assert "hunter2" not in stats.unanswered[1].why
    assert told == stats.unanswered


async def test_without_the_store_the_queues_are_counted_and_letters_are_not_none(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.app.send("orders", b"")
    monkeypatch.setattr(service.app.store.letters, "tallies", unavailable)
    stats = await service.stats()
    assert (stats.total, stats.open) == (None, None)
    assert [each.source for each in stats.sources] == ["orders"]
    assert stats.unanswered[0] == Unanswered("store", "redrive.db is unavailable: the disk is full")


async def test_a_transport_that_names_no_source_is_asked_whether_it_is_there(service: Service) -> None:
    class Silent(MemoryTransport):
        async def check(self) -> None:
            raise TransportUnavailable("rabbitmq", "connection refused")

    service.app.use("rabbit", Silent(clock=service.app.clock, lease=timedelta(minutes=1)))
    assert "transports.rabbit" in {each.backend for each in (await service.stats()).unanswered}


async def test_what_a_scrape_shows_is_what_could_be_measured(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    (letter,) = await bury(service)
    replay = await service.replay(Query(), every=True, actor=acting("ann"))
    measured = await service.measured()
    assert measured.up == {
        "store": True,
        "transports.default": True,
        "transports.typo": False,
        "transports.kafka": False,
    }
    assert measured.oldest is not None
    assert (measured.oldest.source, measured.oldest.at) == ("orders", letter.created_at)
    assert measured.replays == {"running": 0, "waiting": 0, "abandoned": 1}
    await service.run_replay(replay.id)
    assert (await service.measured()).replays == {"running": 0, "waiting": 0, "abandoned": 0}
    monkeypatch.setattr(service.app.store.letters, "search", unavailable)
    assert (await service.measured()).oldest is None


async def test_a_source_that_may_be_of_a_broker_that_is_away_is_no_typo(service: Service) -> None:
    assert (await service.letters(Query(sources=("payments",)))).letters == []
    service.app.use("kafka", MemoryTransport(clock=service.app.clock, lease=timedelta(minutes=1)))
    service.app.use("typo", MemoryTransport(clock=service.app.clock, lease=timedelta(minutes=1)))
    with pytest.raises(UnknownSource):
        await service.letters(Query(sources=("payments",)))


async def test_no_broker_is_asked_for_a_source_that_letters_have(service: Service, told: list[Unanswered]) -> None:
    await bury(service, source="emails")
    assert len((await service.letters(Query(sources=("emails", "orders")))).letters) == 1
    assert told == []


async def test_sources_and_fairness_name_what_could_not_be_asked(service: Service) -> None:
    assert (await service.sources()).sources == ["orders"]
    assert [each.backend for each in (await service.sources()).unanswered] == ["transports.typo", "transports.kafka"]
    fairness = await service.fairness()
    assert (fairness.sources, [each.backend for each in fairness.unanswered]) == ([], ["transports.typo"])


async def test_a_plan_says_which_letters_have_no_way_back_from_here(service: Service) -> None:
    await bury(service, 2)
    await bury(service, 3, transport="celery")
    plan = await service.plan(Query())
    assert (plan.total, plan.not_configured) == (5, {"celery": 3})
    assert (await service.plan(Query(), transports=["default", "celery"])).not_configured == {}
    assert (await service.plan(Query(transports=("default",)))).not_configured == {}


async def test_a_retry_of_a_letter_without_a_way_back_is_refused_before_anything_is_sent(service: Service) -> None:
    (fine,), (lost,) = await bury(service), await bury(service, transport="celery")
    with pytest.raises(NoWayBack, match=r"transport 'celery', which is not configured here.*transports.celery"):
        await service.retry([fine.id, lost.id], actor=acting("ann"))
    assert (await service.find(fine.id)).state is State.PENDING
    assert await service.replays.list() == []


async def test_a_replay_skips_what_cannot_be_opened_here_and_sends_the_rest(service: Service) -> None:
    await bury(service)
    await bury(service, transport="typo")
    replay = await service.replay(Query(), every=True, actor=acting("ann"))
    report = await service.run_replay(replay.id)
    assert report.entries == {EntryStatus.SENT: 1, EntryStatus.SKIPPED: 1}
    ((skipped,), _) = await service.replay_entries(replay.id, status=EntryStatus.SKIPPED)
    assert "transport 'typo' cannot be opened here: transports.typo: no transport speaks 'kafak'" in skipped.note


async def test_a_transport_that_cannot_be_closed_keeps_no_other_open(tmp_path: Path) -> None:
    closed: list[str] = []

    class Stuck(MemoryTransport):
        async def aclose(self) -> None:
            raise TransportUnavailable("redis", "connection lost")

    class Fine(MemoryTransport):
        async def aclose(self) -> None:
            closed.append("fine")

    app = Redrive(settings=Settings(store="memory://", transports={"default": "memory://"}))
    app.use("stuck", Stuck(clock=app.clock, lease=timedelta(minutes=1)))
    app.use("fine", Fine(clock=app.clock, lease=timedelta(minutes=1)))
    with pytest.raises(TransportUnavailable):
        await app.aclose()
    assert closed == ["fine"]
