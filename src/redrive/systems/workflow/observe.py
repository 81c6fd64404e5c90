"""Who learns of what happens: the log, and the observability object that an app has."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from redrive.errors import ConfigError
from redrive.forensics.redact import Redactor
from redrive.systems.workflow.facts import TaskEnqueued, TaskExhausted, TaskRetried, attributes_of, line_of
from redrive.telemetry.events import BackendDown, Event, Events

log = logging.getLogger("redrive.workflow")
_LINES_A_SECOND = 20  # of one text: the rest of a flood is counted
_LONGEST = 200  # characters of an error
_TAKES = (
    "give an Events, a function that takes an Event, a logger, or an object with log_info, log_warning and log_error "
    "that take a message and attributes"
)
_COUNTED = {
    TaskEnqueued: "mahavishnu.dlq.enqueued",
    TaskRetried: "mahavishnu.dlq.retried",
    TaskExhausted: "mahavishnu.dlq.exhausted",
    BackendDown: "mahavishnu.dlq.backend_down",
}


class QueueLog:
    """A subscriber that writes a line for each event that deserves one, and only some of a kind in a second."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._redactor = Redactor()
        self._second = 0.0
        self._written: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        line = line_of(event)
        if line is not None and log.isEnabledFor(line[0]) and self._may_write(line[1]):
            fields = readable(event, self._redactor)
            log.log(line[0], "%s (%s)", line[1], spelled(fields), extra=fields)

    def _may_write(self, text: str) -> bool:
        if self._elapsed() - self._second >= 1.0:
            self._tell_of_the_rest()
            self._second, self._written = self._elapsed(), {}
        self._written[text] = self._written.get(text, 0) + 1
        return self._written[text] <= _LINES_A_SECOND

    def _tell_of_the_rest(self) -> None:
        for text, count in self._written.items():
            if count > _LINES_A_SECOND:
                log.warning("%s: %d more lines like this were left out", text, count - _LINES_A_SECOND)


class Relay:
    """A subscriber that tells an observability object: `log_info(message, attributes=…)`, counters of its `meter`."""

    def __init__(self, manager: Any) -> None:
        names = {logging.INFO: "log_info", logging.WARNING: "log_warning", logging.ERROR: "log_error"}
        self._say = {level: _saying(getattr(manager, name, manager.log_info)) for level, name in names.items()}
        self._redactor = Redactor()
        create = getattr(getattr(manager, "meter", None), "create_counter", None)
        self._counters = {kind: create(name) for kind, name in _COUNTED.items()} if callable(create) else {}

    def __call__(self, event: Event) -> None:
        line = line_of(event)
        if line is not None:
            self._say[line[0]](line[1], readable(event, self._redactor))
        if (counter := self._counters.get(type(event))) is not None:
            counter.add(1, {"success": event.success} if isinstance(event, TaskRetried) else {})


class LoggerRelay:
    """A subscriber that writes to a logger of the app's own."""

    def __init__(self, logger: Any) -> None:
        self._say = {logging.INFO: logger.info, logging.WARNING: logger.warning, logging.ERROR: logger.error}
        self._redactor = Redactor()

    def __call__(self, event: Event) -> None:
        if (line := line_of(event)) is not None:
            self._say[line[0]](f"{line[1]} ({spelled(readable(event, self._redactor))})")


def events_of(manager: Any) -> Events:
    """The events that an observability manager learns of, whatever it is. ConfigError says what it may be."""
    if isinstance(manager, Events):
        return manager
    if isinstance(found := getattr(manager, "events", None), Events):
        return found
    events = Events()
    if manager is not None:
        events.subscribe(_subscriber(manager))
    return events


def _subscriber(manager: Any) -> Callable[[Event], None]:
    if inspect.isclass(manager):
        raise ConfigError(f"observability_manager={manager!r} is a class, not an object: {_TAKES}")
    if callable(getattr(manager, "log_info", None)):
        return Relay(manager)
    if all(callable(getattr(manager, name, None)) for name in ("info", "warning", "error")):
        return LoggerRelay(manager)
    if callable(manager):
        return manager  # type: ignore[no-any-return]
    raise ConfigError(f"observability_manager={manager!r}: {_TAKES}")


def readable(event: Event, redactor: Redactor) -> dict[str, Any]:
    """Its attributes without secrets, and without the length of some errors."""
    shown = attributes_of(event)
    if isinstance(error := shown.get("error"), str):
        masked = " ".join(redactor.text(error).split())
        shown["error"] = masked if len(masked) <= _LONGEST else f"{masked[: _LONGEST - 1]}…"
    return shown


def spelled(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def _saying(log_line: Callable[..., Any]) -> Callable[[str, dict[str, Any]], Any]:
    """Call it with attributes, if it takes any."""
    try:
        parameters = inspect.signature(log_line).parameters.values()
    except (TypeError, ValueError):
        return lambda text, fields: log_line(text, attributes=fields)
    if any(parameter.name == "attributes" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return lambda text, fields: log_line(text, attributes=fields)
    return lambda text, fields: log_line(f"{text} ({spelled(fields)})")
