"""Taskiq's side: reports a task that fails for good, and the success of one that was replayed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from taskiq import TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.exceptions import NoResultError

from redrive.clock import Clock, SystemClock
from redrive.flow.lineage import LETTER
from redrive.integrations.letters import failure_of, letter_of
from redrive.integrations.reporter import Reporter
from redrive.integrations.taskiq.formatter import RUNNING, Formatter, Run, UnknownTask
from redrive.integrations.taskiq.places import EXCHANGE, KIND, ROUTING_KEY, place_of
from redrive.integrations.taskiq.wire import ATTEMPTS, COUNT, ID, LINEAGE, OURS, without_labels
from redrive.model import Failure, Headers, Message, Reason, Stage
from redrive.untrusted import UNREADABLE

_MOST_ATTEMPTS = 10
_LONGEST_STACK = 1_000  # of an attempt that was retried: it travels with the task
_LONGEST_ARGUMENTS = 4_000
_story = msgspec.json.Decoder(list[Failure])


class RedriveMiddleware(TaskiqMiddleware):
    """`broker.add_middlewares(RedriveMiddleware(store="postgresql://…"))`

    store       the URL of the store that letters go to
    transport   the name of the transport that a replay uses: `[transports] taskiq = "taskiq+redis://…"`
    spool       the directory in which letters wait for the store; by default one for this user and store
    fsync       a letter survives a crash of the machine, too, before its task is acknowledged
    version     of your code, to be shown with each failure
    """

    def __init__(
        self,
        store: str,
        *,
        transport: str = "taskiq",
        spool: str | Path | None = None,
        fsync: bool = True,
        version: str = "",
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self._clock = clock or SystemClock()
        self._reporter = Reporter(store, spool=spool, fsync=fsync, clock=self._clock)
        self._transport = transport
        self._version = version
        self._worker = socket.gethostname()

    def startup(self) -> None:
        """In a worker: stand behind all others, so that each failure is known before a retry sends it on, and before
        the formatter. The list is made anew: Taskiq is going through the old one."""
        if not self.broker.is_worker_process:
            return
        others = [middleware for middleware in self.broker.middlewares if middleware is not self]
        self.broker.middlewares = [*others, self]
        if not isinstance(self.broker.formatter, Formatter):
            self.broker.formatter = Formatter(self.broker.formatter, self.broker.find_task, self._dropped)
        self._reporter.start()

    async def shutdown(self) -> None:
        await asyncio.to_thread(self._reporter.close)

    def pre_send(self, message: TaskiqMessage) -> TaskiqMessage:
        """What is sent while a task of the same id runs is a retry of it: its failures go along."""
        run = _run_of(message)
        if run is not None and run.failures:
            message.labels[ATTEMPTS] = _told(run.failures)
        return message

    def post_send(self, message: TaskiqMessage) -> None:
        run = _run_of(message)
        if run is not None:
            run.is_sent_again = True

    def on_error(self, message: TaskiqMessage, result: TaskiqResult[Any], exception: BaseException) -> None:
        run = _run_of(message)
        if run is not None and not isinstance(exception, NoResultError):
            run.failures = [*_earlier(message.labels), self._failure(exception, _attempt_of(message.labels))]

    async def post_execute(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
        if not result.is_err:
            if LETTER in message.labels:
                await asyncio.to_thread(self._reporter.succeeded, self._message(message, b""))
            return
        run = _run_of(message)
        if run is None or run.is_sent_again or isinstance(result.error, NoResultError) or not run.failures:
            return
        await asyncio.to_thread(self._died, self._message(message, run.body), run.failures, Reason.ATTEMPTS)

    def _dropped(self, body: bytes, message: TaskiqMessage, error: BaseException) -> None:
        """A task that Taskiq will acknowledge without running it. It is on disk before that."""
        is_unknown = isinstance(error, UnknownTask)
        stage = Stage.DELIVERY if is_unknown else Stage.DECODE
        failure = replace(self._failure(error, 1), stage=stage, stack="", frames=())
        reason = Reason.PERMANENT if is_unknown else Reason.UNDECODABLE
        self._died(self._message(message, body), [failure], reason)

    def _died(self, message: Message, failures: Sequence[Failure], reason: Reason) -> None:
        now = self._clock.now()
        self._reporter.died(letter_of(message, failures, transport=self._transport, now=now, reason=reason))

    def _failure(self, error: BaseException, attempt: int) -> Failure:
        return failure_of(error, at=self._clock.now(), attempt=attempt, worker=self._worker, version=self._version)

    def _message(self, message: TaskiqMessage, body: bytes) -> Message:
        place = place_of(self.broker, message.labels)
        more: Headers = ()
        if place.exchange:
            more = ((EXCHANGE, place.exchange.encode()), (ROUTING_KEY, place.queue.encode()))
        return Message(
            id=str(message.labels.get(ID) or message.task_id or self._clock.new_id()),
            source=place.queue,
            body=self._fresh(body, message.labels),
            enqueued_at=self._clock.now(),
            headers=((KIND, place.kind.encode()), *more, *_shown(message, body), *_lineage(message.labels)),
        )

    def _fresh(self, body: bytes, labels: dict[str, Any]) -> bytes:
        """The task as it was first kicked: a replay has all its retries before it again."""
        ours = [name for name in (COUNT, *OURS) if name in labels]
        if not ours or not body:
            return body
        stripped = without_labels(body, *ours)
        if stripped is not None:
            return stripped
        try:  # of another serializer: it is Taskiq that reads and writes it
            formatter = self.broker.formatter
            task = formatter.reread(body) if isinstance(formatter, Formatter) else formatter.loads(message=body)
            task.labels = {name: value for name, value in task.labels.items() if name not in ours}
            task.labels_types = {name: type for name, type in (task.labels_types or {}).items() if name not in ours}
            return formatter.dumps(task).message
        except Exception:
            return body


def _run_of(message: TaskiqMessage) -> Run | None:
    run = RUNNING.get()
    return run if run is not None and run.task_id == message.task_id else None


def _attempt_of(labels: dict[str, Any]) -> int:
    try:
        return int(labels.get(COUNT, 0)) + 1
    except (TypeError, ValueError):
        return 1


def _earlier(labels: dict[str, Any]) -> list[Failure]:
    """The failures that came with it; anybody can write anything there."""
    try:
        return _story.decode(str(labels[ATTEMPTS]))
    except (KeyError, *UNREADABLE):
        return []


def _told(failures: Sequence[Failure]) -> str:
    kept = [replace(failure, stack=failure.stack[-_LONGEST_STACK:]) for failure in failures[-_MOST_ATTEMPTS:]]
    return msgspec.json.encode(kept).decode()


def _lineage(labels: dict[str, Any]) -> Headers:
    return tuple((name, str(labels[name]).encode("ascii", "replace")) for name in LINEAGE if name in labels)


def _shown(message: TaskiqMessage, body: bytes) -> Headers:
    """The name of the task, its labels, and its arguments where the body does not show them."""
    own = {name: value for name, value in message.labels.items() if name not in OURS}
    shown: Headers = (("taskiq-task", message.task_name.encode()), ("taskiq-labels", _text(own)))
    if body[:1] != b"{" and message.task_name:
        shown += (("taskiq-args", _text(message.args)), ("taskiq-kwargs", _text(message.kwargs)))
    return shown


def _text(value: object) -> bytes:
    """A value for people, whatever its __repr__ does."""
    try:
        return repr(value)[:_LONGEST_ARGUMENTS].encode("utf-8", "backslashreplace")
    except Exception as error:
        return f"(its __repr__ raised {type(error).__name__})".encode()
