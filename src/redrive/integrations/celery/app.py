"""RedriveCelery: one line in an app of Celery, and what dies in its workers is a letter."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import msgspec
from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import signals
from celery.exceptions import Reject

from redrive.clock import Clock, SystemClock
from redrive.config.load import load
from redrive.errors import ConfigError
from redrive.flow.attempt import text_of, type_name
from redrive.integrations.celery.attempts import earlier, keep_attempts
from redrive.integrations.celery.consumer import step_for
from redrive.integrations.celery.notes import KIND, Note, note_of
from redrive.integrations.celery.request import error_of
from redrive.integrations.celery.wire import identity, kept, lineage_of
from redrive.integrations.letters import failure_of, failure_told, letter_of
from redrive.integrations.reporter import Reporter
from redrive.model import Failure, Reason
from redrive.registry import check_url

log = logging.getLogger("redrive")
_LONGEST_NUMBER = 1 << 30


class RedriveCelery:
    """Every task of that app that dies in a worker becomes a letter of that store.

    store       its URL; by default the setting `store` of redrive.toml or REDRIVE_STORE
    transport   the name of the transport that replays go through: set `transports.celery` where you run `redrive`
    spool       the directory in which letters wait while the store is away; by default one for this user and store
    fsync       a letter survives a crash of the machine, too, before its message is acknowledged (`acks_late`), or soon
                after: within milliseconds, if the store answers
    """

    def __init__(
        self,
        app: Any,
        store: str | None = None,
        *,
        transport: str = "celery",
        spool: str | Path | None = None,
        fsync: bool = True,
        clock: Clock | None = None,
    ) -> None:
        if getattr(app, "redrive", None) is not None:
            raise ConfigError("this app has a RedriveCelery already: one is enough")
        self.app = app
        self.store = load().store if store is None else store
        check_url("store", self.store)
        self._options: dict[str, Any] = {"spool": spool, "fsync": fsync}
        self._transport = transport
        self._clock = clock or SystemClock()
        self._watch: Watch | None = None
        app.redrive = self
        app.steps["consumer"].add(step_for(self))
        signals.worker_process_init.connect(self._in_child, weak=False)
        signals.worker_shutdown.connect(self._close, weak=False)

    def started(self, consumer: Any) -> Watch:
        """The watch over a worker that starts."""
        if self._watch is None:
            reporter = Reporter(self.store, clock=self._clock, **self._options)
            self._watch = Watch(reporter, self._transport, self._clock)
        try:
            self._watch.begin(note_of(consumer, self._transport, self._clock.now()))
        except Exception:  # settings of a kind that nobody has thought of: the doctor says nothing of them
            log.exception("this worker could not note how it is set up")
        return self._watch

    def _in_child(self, **_: Any) -> None:
        """A process of the prefork pool, which was forked before there was a consumer: only its retries are ours."""
        for task in list(self.app.tasks.values()):
            keep_attempts(task, self._clock)

    def _close(self, **_: Any) -> None:
        if self._watch is not None:
            self._watch.close()


class Watch:
    """Reports of one worker. Nothing it does raises into Celery."""

    def __init__(self, reporter: Reporter, transport: str, clock: Clock) -> None:
        self._reporter = reporter
        self._transport = transport
        self._clock = clock

    def begin(self, note: Note) -> None:
        """Deliver what an earlier worker has left, and note how this one is set up."""
        self._reporter.noted(KIND, f"celery/{note.app}", msgspec.to_builtins(note))

    def close(self) -> None:
        """Deliver what waits, as far as the store answers."""
        self._reporter.close()

    def keep_attempts(self, task: Any) -> None:
        keep_attempts(task, self._clock)

    def died(self, request: Any, failed: Any) -> bool:
        """Keep the letter of that request; whether it is on disk."""
        try:
            last = self.failure(request, failed)
            reason, waits = _reason(error_of(failed), last), not request.acknowledged
            return self._keep(request.message, request.type, request.id, last, reason, waits=waits)
        except Exception:
            log.exception("the letter of %s[%s] could not be made", request.name, request.id)
            return False

    def failure(self, request: Any, failed: Any) -> Failure:
        """The failure of the last attempt."""
        error = error_of(failed)
        return failure_told(
            _type_of(error),
            text_of(error),
            at=self._clock.now(),
            stack=failed.traceback or "" if isinstance(failed, ExceptionInfo) else "",
            error=error,
            attempt=_attempt(request.request_dict),
            worker=str(request.hostname or ""),
        )

    def unusable(self, message: Any, error: BaseException, reason: Reason) -> bool:
        """Keep the letter of a message that is no task here; whether it is on disk."""
        try:
            task, id = identity(message)
            failure = failure_of(error, at=self._clock.now(), attempt=_attempt(message.headers or {}))
            return self._keep(message, task, id, failure, reason)
        except Exception:
            log.exception("the letter of a message that cannot be used could not be made")
            return False

    def give_back(self, message: Any) -> None:
        """Put a message back into its queue, because its letter could not be written."""
        time.sleep(1)
        message.reject_log_error(log, (OSError,), requeue=True)

    def succeeded(self, request: Any) -> None:
        """Resolve the letter that this task was replayed from, if it was."""
        try:
            sent = lineage_of(request.message, task=request.type, id=request.id, now=self._clock.now())
            self._reporter.succeeded(sent, waits=not request.acknowledged)
        except Exception:
            log.exception("the success of %s[%s] could not be told", request.name, request.id)

    def _keep(self, message: Any, task: str, id: str, last: Failure, reason: Reason, *, waits: bool = True) -> bool:
        now = self._clock.now()
        failures = (*earlier(message.headers), last)
        dead = kept(message, task=task, id=id, now=now)
        letter = letter_of(dead, failures, transport=self._transport, now=now, reason=reason)
        return self._reporter.died(letter, waits=waits)


def _reason(error: BaseException, last: Failure) -> Reason:
    if isinstance(error, WorkerLostError):
        return Reason.CRASHED
    if isinstance(error, Reject):
        return Reason.PERMANENT
    if isinstance(error, TimeLimitExceeded) or last.attempt > 1 or last.retryable:
        return Reason.ATTEMPTS
    return Reason.PERMANENT


def _type_of(error: BaseException) -> str:
    """The name of its type; of one that could not be pickled, the name it had."""
    name, module = getattr(error, "exc_cls_name", None), getattr(error, "exc_module", None)
    return f"{module}.{name}" if isinstance(name, str) and isinstance(module, str) else type_name(error)


def _attempt(headers: Any) -> int:
    retries = headers.get("retries") if isinstance(headers, dict) else 0
    return retries + 1 if isinstance(retries, int) and 0 <= retries < _LONGEST_NUMBER else 1
