"""Log lines (structlog): for people on a terminal, JSON for programs, always to stderr.

A failure is a line. When thousands fail at once they are not thousands of lines: past a bound for each kind and
second, one line says how many were left out. Every failure is in its letter anyway.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Collection, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import MASK
from redrive.model import Failure
from redrive.telemetry import events as facts
from redrive.telemetry.events import Event, Events

if TYPE_CHECKING:
    from redrive.app import Redrive

_LINES_A_SECOND = 20
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
Fields = dict[str, Any]
Line = tuple[int, str, Fields]


def setup_logs(
    level: str = "info", format: str = "auto", stream: TextIO | None = None, redactor: Redactor | None = None
) -> None:
    """Send everything that this process logs one way, the standard library's loggers included; secrets are masked in
    every field, in errors and in stacks, and no frame's variables are written."""
    out = sys.stderr if stream is None else stream
    people = is_for_people(format, out)
    shared = _shared()
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _said_once],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderer(people, out, redactor or Redactor()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def is_for_people(format: str, out: TextIO | None = None) -> bool:
    """Whether logs of that format are read by people, not by programs; `auto` looks whether it is a terminal."""
    return format == "console" or (format == "auto" and (out or sys.stderr).isatty())


def _shared() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _renderer(people: bool, out: TextIO, redactor: Redactor) -> list[Any]:
    """A stack is written as Python writes it, without the variables of its frames, and then masked as any field."""
    masked: list[Any] = [structlog.processors.format_exc_info, _Masked(redactor)]
    if people:
        plain = structlog.dev.plain_traceback
        colors = out.isatty()
        return [
            *masked,
            _harmless,
            structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False, exception_formatter=plain),
        ]
    return [*masked, structlog.processors.JSONRenderer(default=str)]


class _Masked:
    """Masks secrets in every field of a line, whatever its type."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, logger: Any, method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {name: self._field(name, value) for name, value in fields.items()}

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, bool | int | float | None):
            return MASK if self._is_number_to_hide(name, value) else value
        if self._redactor.is_secret(name):
            return MASK if value else value
        if isinstance(value, Mapping):
            if self._redactor.is_secret(str(value.get("name") or value.get("key") or "")):
                return {
                    str(key): item if key in ("name", "key") else self._field("secret", item)
                    for key, item in value.items()
                }
            return {str(key): self._field(str(key), item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            if (pair := self._pair(value)) is not None:
                return pair
            return [self._field("", item) for item in value]
        return self._redactor.text(value if isinstance(value, str) else str(value))

    def _pair(self, value: Collection[Any]) -> list[Any] | None:
        """A header as clients keep them, its name and its value, if that is a secret."""
        if not isinstance(value, list | tuple) or len(value) != 2 or not isinstance(value[0], str | bytes):
            return None
        name = value[0].decode("latin-1") if isinstance(value[0], bytes) else value[0]
        return [name, self._field(name, value[1])] if self._redactor.is_secret(name) else None

    def _is_number_to_hide(self, name: str, value: Any) -> bool:
        if value is None or isinstance(value, bool):
            return False
        return self._redactor.is_secret(name) or self._redactor.text(str(value)) != str(value)


def _said_once(logger: Any, method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Drop uvicorn's second copy of its message, which has colours in it."""
    fields.pop("color_message", None)
    return fields


def _harmless(logger: Any, method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters, so that an error message cannot drive the terminal it is shown in."""
    return {name: value.translate(_CONTROLS) if isinstance(value, str) else value for name, value in fields.items()}


def log_events(
    events: Events, redactor: Redactor | None = None, *, lines_a_second: int = _LINES_A_SECOND
) -> Callable[[], None]:
    """Write a line for each event that deserves one; returns a function that ends it."""
    return events.subscribe(EventLog(redactor or Redactor(), lines_a_second))


def log_app(app: Redrive) -> None:
    """Log to stderr what happens in that app, as its settings say."""
    settings = app.settings
    redactor = Redactor.of(settings.redact)
    setup_logs(settings.logs.level, settings.logs.format, redactor=redactor)
    log_events(app.events, redactor)


class EventLog:
    """A subscriber that writes lines, and no more of a kind in a second than its bound."""

    def __init__(
        self, redactor: Redactor, most: int = _LINES_A_SECOND, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._redactor = redactor
        self._most = most
        self._elapsed = elapsed
        self._second = 0.0
        self._written: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self._log = structlog.stdlib.get_logger("redrive")

    def __call__(self, event: Event) -> None:
        say = _SAYS.get(type(event))
        if say is None:
            return
        self._next_second()
        level, name, fields = say(event)
        if level <= logging.DEBUG or self._may_write(name):
            self._write(level, name, fields)

    def flush(self) -> None:
        """Write how many lines were left out until now."""
        left_out, self._left_out = self._left_out, {}
        for name, count in left_out.items():
            self._log.warning("lines_suppressed", of=name, count=count)

    def _next_second(self) -> None:
        now = self._elapsed()
        if now - self._second >= 1.0:
            self._second, self._written = now, {}
            self.flush()

    def _may_write(self, name: str) -> bool:
        written = self._written[name] = self._written.get(name, 0) + 1
        if written <= self._most:
            return True
        if not self._left_out:
            self._flush_later()
        self._left_out[name] = self._left_out.get(name, 0) + 1
        return False

    def _flush_later(self) -> None:
        """Flush in a second, so that the end of a flood is logged even if nothing follows it."""
        with suppress(RuntimeError):  # no loop: the next line of any kind tells it
            asyncio.get_running_loop().call_later(1.0, self.flush)

    def _write(self, level: int, name: str, fields: Fields) -> None:
        if not logging.getLogger("redrive").isEnabledFor(level):
            return
        fields = {key: self._redactor.text(value) if type(value) is str else value for key, value in fields.items()}
        self._log.log(level, name, **{key: value for key, value in fields.items() if value is not None})


def _failed(event: facts.MessageRetried | facts.MessageBuried) -> Fields:
    failure: Failure = event.failure
    return {
        "source": event.source,
        "message_id": event.message,
        "attempt": failure.attempt,
        "category": str(failure.category),
        "code": failure.code,
        "error_type": failure.type,
        "error": failure.message,
        "correlation_id": event.correlation_id,
        "tenant": event.tenant,
    }


def _retried(event: facts.MessageRetried) -> Line:
    later = {"next_retry_in": round(event.after.total_seconds(), 3)}
    return logging.WARNING, "message_retried", _failed(event) | later


def _buried(event: facts.MessageBuried) -> Line:
    of_letter = {"letter_id": event.letter, "group": event.group, "reason": event.reason, "state": event.state}
    return logging.ERROR, "message_buried", _failed(event) | of_letter


def _refused(event: facts.LetterRefused) -> Line:
    fields = {"source": event.source, "message_id": event.message, "error": event.why}
    return logging.ERROR, "letter_refused", fields


def _resolved(event: facts.LetterResolved) -> Line:
    fields = {"source": event.source, "letter_id": event.letter, "replay": event.replay}
    return logging.INFO, "letter_resolved", fields


def _down(event: facts.BackendDown) -> Line:
    fields = {"backend": event.backend, "error": event.why, "next_retry_in": event.pause.total_seconds()}
    return logging.ERROR, "backend_down", fields


def _not_told(event: facts.NotifierDown) -> Line:
    fields = {"notifier": event.notifier, "error": event.why, "next_retry_in": event.pause.total_seconds()}
    return logging.WARNING, "notifier_down", fields


def _dropped(event: facts.AlertsDropped) -> Line:
    return logging.ERROR, "alerts_dropped", {"notifier": event.notifier, "count": event.count, "error": event.why}


def _lost(event: facts.LeaseLost) -> Line:
    fields = {"source": event.source, "count": len(event.messages), "message_id": event.messages[0]}
    return logging.WARNING, "lease_lost", fields


def _settled(event: facts.BatchSettled) -> Line:
    names = ("source", "done", "retried", "buried", "released", "behind")
    return logging.DEBUG, "batch_settled", {name: getattr(event, name) for name in names}


def _process_died(event: facts.ProcessDied) -> Line:
    fields = {
        "process": event.process,
        "pid": event.pid,
        "cause": event.cause,
        "lived": round(event.lived.total_seconds(), 1),
        "next_start_in": None if event.pause is None else event.pause.total_seconds(),
    }
    return logging.ERROR, "process_died", fields


def _as_is(level: int, name: str) -> Callable[[Event], Line]:
    """A line with every field of the event under its own name."""
    return lambda event: (level, name, {field: getattr(event, field) for field in event.__struct_fields__})


_SAYS: Mapping[type[Event], Callable[[Any], Line]] = {
    facts.MessageRetried: _retried,
    facts.MessageBuried: _buried,
    facts.LetterRefused: _refused,
    facts.LetterResolved: _resolved,
    facts.BackendDown: _down,
    facts.LeaseLost: _lost,
    facts.BatchSettled: _settled,
    facts.LoginFailed: _as_is(logging.WARNING, "login_failed"),
    facts.BackendUp: _as_is(logging.INFO, "backend_up"),
    facts.BreakerMoved: _as_is(logging.WARNING, "breaker_moved"),
    facts.SourceStormed: _as_is(logging.ERROR, "source_stormed"),
    facts.StormProbed: _as_is(logging.WARNING, "storm_probed"),
    facts.StormEnded: _as_is(logging.WARNING, "storm_ended"),
    facts.KeysHeld: _as_is(logging.INFO, "keys_held"),
    facts.KeyHoldFull: _as_is(logging.WARNING, "key_hold_full"),
    facts.KeyReleased: _as_is(logging.WARNING, "key_released"),
    facts.ReplayMoved: _as_is(logging.INFO, "replay_moved"),
    facts.GroupDeployed: _as_is(logging.INFO, "group_deployed"),
    facts.GroupRegressed: _as_is(logging.WARNING, "group_regressed"),
    facts.LettersMoved: _as_is(logging.INFO, "letters_moved"),
    facts.LettersPruned: _as_is(logging.INFO, "letters_pruned"),
    facts.LettersRetried: _as_is(logging.DEBUG, "letters_retried"),
    facts.QueueMeasured: _as_is(logging.DEBUG, "queue_measured"),
    facts.AlertsSent: _as_is(logging.INFO, "alerts_sent"),
    facts.NotifierDown: _not_told,
    facts.AlertsDropped: _dropped,
    facts.IncidentMoved: _as_is(logging.WARNING, "incident_moved"),
    facts.WorkerStarted: _as_is(logging.INFO, "worker_started"),
    facts.WorkerStopped: _as_is(logging.INFO, "worker_stopped"),
    facts.ProcessStarted: _as_is(logging.INFO, "process_started"),
    facts.ProcessDied: _process_died,
    facts.UpkeepRan: _as_is(logging.DEBUG, "upkeep_ran"),
    facts.Acted: _as_is(logging.INFO, "acted"),
}
