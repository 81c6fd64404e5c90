"""What tells of a worker's dead jobs, and of those that were sent back and succeeded.

As an exception handler it hears what jobs raise and which were abandoned by a worker that died. Attached to a worker it
hears the rest, too: work horses that were killed, jobs that were stopped or got stuck, and successes.

In a work horse, which is a fork that ends with its job, a report is only written; the worker's courier delivers it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec.structs import replace
from redis.exceptions import RedisError
from rq.job import Job
from rq.worker import BaseWorker

from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigError
from redrive.flow.lineage import LETTER
from redrive.integrations.letters import failure_of, letter_of
from redrive.integrations.reporter import Reporter
from redrive.integrations.rq.fields import (
    DIED,
    FAILURES,
    OURS,
    as_fields,
    attempts_in,
    died_at,
    lineage_in,
    message_of,
    noted,
)
from redrive.integrations.rq.reader import ABANDONED, STOPPED, failure_said, reason_of
from redrive.model import Category, Failure, Message

log = logging.getLogger("redrive")


class RedriveRQ:
    """Makes letters of dead jobs, and resolves them when a job that was sent back succeeds.

    worker     the worker to attach to; without one, this is an exception handler: `exception_handlers=[RedriveRQ(…)]`
    store      the URL of the store that letters go to
    transport  what `transports` in the configuration of Redrive calls the way back: `rq+redis://…`
    spool      the directory in which letters wait for the store
    fsync      a letter survives a crash of the machine, too, before its job is failed
    version    of your code, for the failures
    """

    def __init__(
        self,
        worker: BaseWorker | None = None,
        *,
        store: str,
        transport: str = "rq",
        spool: str | Path | None = None,
        fsync: bool = True,
        version: str = "",
        clock: Clock | None = None,
    ) -> None:
        if not transport:
            raise ConfigError("transport= is what the configuration of Redrive calls the way back, such as rq")
        if worker is not None and not isinstance(worker, BaseWorker):
            raise ConfigError(f"a worker of RQ is attached to, not {worker!r}: RedriveRQ(worker, store=…)")
        self._reporter = Reporter(store, spool=spool, fsync=fsync, apart=True, clock=clock)
        self._transport = transport
        self._version = version
        self._clock = clock or SystemClock()
        self._worker: BaseWorker | None = None
        self._pid = os.getpid()
        self._handled: Job | None = None  # its exception was told of, and its failure follows
        if worker is not None:
            self.attach(worker)
        self._reporter.start()

    def attach(self, worker: BaseWorker) -> None:
        """Hear everything that becomes of this worker's jobs."""
        self._worker = worker
        worker.push_exc_handler(self)
        worker.job_class = with_our_fields(worker.job_class)
        for queue in worker.queues:
            queue.job_class = with_our_fields(queue.job_class)
        around = {
            "handle_job_failure": self._around_failure,
            "handle_job_success": self._around_success,
            "handle_job_retry": self._around_retry,
        }
        for name, wrap in around.items():
            setattr(worker, name, wrap(getattr(worker, name)))

    def close(self, timeout: float = 5.0) -> None:
        """Deliver what waits, for at most so many seconds."""
        self._reporter.close(timeout)

    # -- what RQ calls ------------------------------------------------------------------------------------------------

    def __call__(
        self, job: Job, kind: type[BaseException], error: BaseException, trace: TracebackType | object
    ) -> bool:
        """An exception handler: the others are asked, too."""
        self._handled = job
        try:
            failure = self._raised(job, error)
            self._failed(job, failure)
        except Exception:
            log.exception("job %s has failed, and no letter could be made of it", job.id)
        return True

    def _around_failure(self, failed: Callable[..., Any]) -> Callable[..., Any]:
        def handle_job_failure(job: Job, queue: Any, started_job_registry: Any = None, exc_string: str = "") -> Any:
            if self._handled is not job:
                self._lost(job, exc_string)
            self._handled = None
            return failed(job, queue, started_job_registry=started_job_registry, exc_string=exc_string)

        return handle_job_failure

    def _around_success(self, succeeded: Callable[..., Any]) -> Callable[..., Any]:
        def handle_job_success(job: Job, queue: Any, started_job_registry: Any) -> Any:
            ours = _ours(job)
            if LETTER in ours or DIED in ours:
                self._write_only_in_horse()
                message = Message(job.id, job.origin, job.data, self._clock.now(), lineage_in(ours))
                if not self._reporter.succeeded(message):
                    self._reporter.succeeded_by_hand(message)
            return succeeded(job=job, queue=queue, started_job_registry=started_job_registry)

        return handle_job_success

    def _around_retry(self, retried: Callable[..., Any]) -> Callable[..., Any]:
        """A job that returns a Retry, and has returned too many, is failed by RQ without an exception."""

        def handle_job_retry(job: Job, queue: Any, retry: Any, *more: Any, **named: Any) -> Any:
            if job.number_of_retries and job.number_of_retries >= retry.max:
                self._lost(job, f"it returned a Retry, and has been retried {job.number_of_retries} times: no more")
            return retried(job, queue, retry, *more, **named)

        return handle_job_retry

    # -- reports ------------------------------------------------------------------------------------------------------

    def _lost(self, job: Job, said: str) -> None:
        """It failed, and nobody has heard an exception: its work horse was killed, or it was stopped, or got stuck."""
        try:
            if self._worker is not None and not self._worker.is_horse:
                job.worker_name = job.worker_name or self._worker.name  # RQ saves the job as its parent process has it
            before = self._before(job)
            self._failed(job, failure_said(_fields(job), said, len(before) + 1), before)
        except Exception:
            log.exception("job %s is lost, and no letter could be made of it", job.id)

    def _failed(self, job: Job, failure: Failure, before: tuple[Failure, ...] | None = None) -> None:
        before = self._before(job) if before is None else before
        if job.should_retry and failure.type != STOPPED:
            self._note(job, FAILURES, noted(before, failure))
            return
        fields = {**_fields(job), **_ours(job)}
        message = message_of(job.id, fields, job.data)
        reason = reason_of(failure)
        letter = letter_of(message, (*before, failure), transport=self._transport, now=failure.at, reason=reason)
        self._write_only_in_horse()
        if self._reporter.died(replace(letter, foreign=self._worker is None)):
            self._note(job, DIED, b"1")  # a success resolves it, whoever requeues the job

    def _raised(self, job: Job, error: BaseException) -> Failure:
        fields, attempt = _fields(job), len(self._before(job)) + 1
        at, worker = died_at(fields), job.worker_name or ""
        made = failure_of(error, at=at, attempt=attempt, worker=worker, version=self._version)
        if type(error).__name__ != "AbandonedJobError":
            return made
        said = "its worker died, or lost Redis, and nobody has heard of the job since"
        return replace(made, type=ABANDONED, message=said, category=Category.RESOURCE, retryable=True)

    def _before(self, job: Job) -> tuple[Failure, ...]:
        """What went wrong in its earlier attempts."""
        return attempts_in(_ours(job).get(FAILURES))

    def _note(self, job: Job, name: str, value: bytes) -> None:
        try:
            job.connection.hset(job.key, name, value)
        except RedisError as error:
            log.warning("job %s: %s is not noted, because Redis does not answer: %s", job.id, name, error)

    def _write_only_in_horse(self) -> None:
        is_horse = os.getpid() != self._pid if self._worker is None else self._worker.is_horse
        self._reporter.delivers = not is_horse


def with_our_fields(job_class: type[Job]) -> type[Job]:
    """That class of jobs, whose jobs know which of their fields are ours: RQ reads them all, and forgets these."""
    if getattr(job_class, "keeps_our_fields", False):
        return job_class

    class RedriveJob(job_class):  # type: ignore[misc,valid-type]
        keeps_our_fields = True
        redrive: dict[str, bytes]

        def restore(self, raw_data: Any) -> Any:
            found = {_text(name): value for name, value in raw_data.items()}
            self.redrive = {name: _bytes(found[name]) for name in OURS if name in found}
            return super().restore(raw_data)

    return RedriveJob


def _ours(job: Job) -> dict[str, bytes]:
    """Our fields of a job; one of another class is asked for in Redis."""
    known: dict[str, bytes] | None = getattr(job, "redrive", None)
    if known is not None:
        return known
    try:
        values = job.connection.hmget(job.key, *OURS)
    except RedisError:
        return {}
    return {name: _bytes(value) for name, value in zip(OURS, values, strict=True) if value is not None}


def _fields(job: Job) -> dict[str, bytes]:
    """The hash of a job, without what is only ours; its data are taken from it apart."""
    return as_fields({name: value for name, value in job.to_dict(include_result=False).items() if name != "data"})


def _text(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
