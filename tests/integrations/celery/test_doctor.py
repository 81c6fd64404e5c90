"""What `redrive doctor` says of Celery's workers, from what they noted of themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from celery import Celery

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.integrations.celery.checks import examine
from redrive.integrations.celery.notes import KIND, note_of
from redrive.stores.memory import MemoryStore
from tests.integrations.celery.messages import NOW


def app_of(broker: str, **conf: Any) -> Any:
    app = Celery("shop", broker=broker, set_as_current=False)
    app.conf.update(**conf)

    @app.task(name="tasks.charge", shared=False)  # type: ignore[untyped-decorator]
    def charge() -> None: ...

    @app.task(name="tasks.ship", time_limit=7200, shared=False)  # type: ignore[untyped-decorator]
    def ship() -> None: ...

    app.finalize()
    return app


async def findings(app: Any, **transports: str) -> list[tuple[str, str, str]]:
    store = MemoryStore()
    note = note_of(SimpleNamespace(app=app, hostname="w@shop"), "celery", NOW)
    await store.documents.put(KIND, "celery/shop", msgspec.to_builtins(note))
    settings = Settings(store="memory://", transports={"default": "memory://", **transports})
    async with Redrive(store=store, settings=settings) as redrive:
        return [(finding.level.value, finding.text, finding.mend) for finding in await examine(redrive)]


async def test_tasks_that_are_acknowledged_early_are_named_with_what_to_set() -> None:
    found = await findings(app_of("amqp://ann:secret@rabbit:5672/shop"), celery="celery+amqp://rabbit")
    (level, text, mend) = found[1]
    assert level == "warning"
    assert text.startswith("tasks.charge, tasks.ship: acknowledged before they run")
    assert "task_acks_late = True" in mend
    assert "secret" not in str(found)


async def test_the_line_that_replays_need_is_shown_where_it_is_missing() -> None:
    found = await findings(app_of("amqp://ann:secret@rabbit:5672/shop", task_acks_late=True))
    [(_, text, mend)] = [finding for finding in found if finding[0] == "warning"]
    assert text == "its letters cannot be replayed from here"
    assert 'celery = "celery+amqp://USER:PASSWORD@rabbit:5672/shop"' in mend
    assert "secret" not in str(found)


@pytest.mark.parametrize(("timeout", "longer"), [(3600, True), (10_000, False)])
async def test_a_task_that_runs_longer_than_redis_waits_is_told(timeout: int, longer: bool) -> None:
    options = {"visibility_timeout": timeout}
    app = app_of("redis://redis:6379/0", task_acks_late=True, broker_transport_options=options)
    texts = [text for level, text, _ in await findings(app, celery="celery+redis://redis") if level == "warning"]
    assert any("gives it to another worker as well" in text for text in texts) is longer
    assert any(text.startswith("tasks.charge: no time limit") for text in texts)


async def test_a_task_that_goes_back_when_it_kills_its_worker_is_told() -> None:
    app = app_of("amqp://rabbit", task_acks_late=True, task_reject_on_worker_lost=True)
    texts = [text for level, text, _ in await findings(app, celery="celery+amqp://r") if level == "warning"]
    assert any("for ever" in text for text in texts)
    safe = await findings(app_of("amqp://rabbit", task_acks_late=True), celery="celery+amqp://r")
    assert [level for level, _, _ in safe] == ["fine"]


async def test_notes_of_others_and_broken_ones_are_passed_over() -> None:
    store = MemoryStore()
    await store.documents.put(KIND, "other/shop", {"integration": "other"})
    await store.documents.put(KIND, "celery/broken", {"integration": "celery", "app": 7})
    async with Redrive(store=store, settings=Settings(transports={"default": "memory://"})) as redrive:
        assert await examine(redrive) == []
