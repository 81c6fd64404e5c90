"""Log lines: parseable, redacted, and bounded when everything fails at once."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog

from redrive import Redrive
from redrive.config.settings import Logs, Redaction, Settings
from redrive.forensics.redact import Redactor
from redrive.telemetry import events as facts
from redrive.telemetry.events import Events
from redrive.telemetry.logs import EventLog, is_for_people, log_app, log_events, setup_logs
from tests.telemetry.facts import buried, retried


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], root.level = before
    structlog.reset_defaults()


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_failure_is_one_json_line_with_everything_to_find_it_by(out: io.StringIO) -> None:
    setup_logs("info", "json", out)
    events = Events()
    log_events(events)
    events.emit(retried())
    events.emit(buried())
    first, second = lines(out)
    assert first.pop("timestamp").endswith("Z")
    assert first == {
        "event": "message_retried",
        "level": "warning",
        "logger": "redrive",
        "source": "orders",
        "message_id": "m1",
        "attempt": 2,
        "category": "network",
        "code": "504",
        "error_type": "TimeoutError",
        "error": "no answer",
        "correlation_id": "visit-7",
        "tenant": "acme",
        "next_retry_in": 1.5,
    }
    assert (second["event"], second["level"]) == ("message_buried", "error")
    assert (second["letter_id"], second["group"], second["reason"]) == ("letter-1", "group-1", "attempts")


def test_every_fact_that_asks_for_a_line_gets_one(out: io.StringIO) -> None:
    setup_logs("info", "json", out)
    events = Events()
    log_events(events)
    said: list[tuple[facts.Event, str, str]] = [
        (facts.LetterRefused(source="orders", message="m", why="too deep"), "letter_refused", "error"),
        (facts.LetterResolved(source="orders", letter="x", replay="r"), "letter_resolved", "info"),
        (facts.BackendDown(backend="db", why="full", pause=timedelta(seconds=2)), "backend_down", "error"),
        (facts.BackendUp(backend="db"), "backend_up", "info"),
        (facts.BreakerMoved(target="default/orders", state="open"), "breaker_moved", "warning"),
        (facts.ReplayMoved(replay="r", state="sent", actor="me", total=3), "replay_moved", "info"),
        (facts.LeaseLost(source="orders", messages=("a", "b")), "lease_lost", "warning"),
        (facts.WorkerStarted(worker="w", sources=("orders",)), "worker_started", "info"),
        (facts.WorkerStopped(worker="w", released=0), "worker_stopped", "info"),
    ]
    for event, _, _ in said:
        events.emit(event)
    assert [(line["event"], line["level"]) for line in lines(out)] == [(name, level) for _, name, level in said]


@pytest.mark.parametrize(("level", "count"), [("info", 0), ("debug", 1)])
def test_successes_are_lines_only_for_who_debugs(out: io.StringIO, level: str, count: int) -> None:
    setup_logs(level, "json", out)
    events = Events()
    log_events(events)
    events.emit(facts.BatchSettled(source="orders", done=100, retried=0, buried=0, released=0, seconds=(0.1,) * 100))
    assert len(lines(out)) == count


def test_secrets_are_masked(out: io.StringIO) -> None:
    setup_logs("info", "json", out)
    log = EventLog(Redactor(patterns=["CUST-\\d+"]))
    log(retried("cannot reach postgres://me:hunter2@db for CUST-77"))
    assert "hunter2" not in out.getvalue()
    assert "CUST-77" not in out.getvalue()


def test_a_flood_is_bounded_and_its_size_is_told(out: io.StringIO) -> None:
    setup_logs("info", "json", out)
    time = 100.0
    log = EventLog(Redactor(), most=5, elapsed=lambda: time)
    for _ in range(1000):
        log(retried())
    log(buried())  # another kind is not drowned by it
    assert [line["event"] for line in lines(out)] == ["message_retried"] * 5 + ["message_buried"]
    time += 1.0
    log(retried())
    summary, following = lines(out)[6:]
    assert (summary["event"], summary["of"], summary["count"]) == ("lines_suppressed", "message_retried", 995)
    assert following["event"] == "message_retried"


async def test_the_end_of_a_flood_is_told_even_if_nothing_follows(out: io.StringIO) -> None:
    setup_logs("info", "json", out)
    told = asyncio.Event()
    log = EventLog(Redactor(), most=1)
    flush = log.flush

    def watched() -> None:
        flush()
        told.set()

    log.flush = watched  # type: ignore[method-assign]
    told.clear()
    for _ in range(3):
        log(retried())
    told.clear()  # the first line of all began a second, and had nothing to tell
    async with asyncio.timeout(10):
        await told.wait()
    assert lines(out)[-1]["count"] == 2


def test_the_standard_librarys_loggers_go_the_same_way(out: io.StringIO) -> None:
    setup_logs("info", "json", out)
    logging.getLogger("uvicorn.error").warning("port %s", 80, extra={"color_message": "port \x1b[1m%s"})
    try:
        raise ValueError("x")
    except ValueError:
        logging.getLogger("somebody").exception("it broke")
    first, second = lines(out)
    assert (first["event"], first["logger"], first["level"]) == ("port 80", "uvicorn.error", "warning")
    assert "color_message" not in first
    assert "ValueError: x" in second["exception"]


def test_for_people_a_message_cannot_drive_the_terminal(out: io.StringIO) -> None:
    setup_logs("info", "console", out)
    EventLog(Redactor())(retried("\x1b[2J\x1b]0;owned\x07gone"))
    assert "message_retried" in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert "gone" in out.getvalue()


def test_without_a_terminal_auto_is_json(out: io.StringIO) -> None:
    setup_logs("info", "auto", out)
    logging.getLogger("redrive").warning("x")
    assert lines(out)[0]["event"] == "x"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_people_read_on_a_terminal_and_where_they_ask_for_it() -> None:
    assert is_for_people("auto", Terminal())
    assert is_for_people("console", io.StringIO())
    assert not is_for_people("auto", io.StringIO())
    assert not is_for_people("json", Terminal())


async def test_an_app_is_logged_as_its_settings_say(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", out)
    settings = Settings(logs=Logs(level="warning", format="json"), redact=Redaction(patterns=("blue",)))
    async with Redrive(settings=settings, transport="memory://", store="memory://") as app:
        log_app(app)
        app.events.emit(facts.BackendDown(backend="a blue one", why="blue smoke", pause=timedelta(seconds=1)))
        app.events.emit(facts.BackendUp(backend="letters"))
    [line] = lines(out)
    assert (line["event"], line["error"]) == ("backend_down", "[redacted] smoke")
