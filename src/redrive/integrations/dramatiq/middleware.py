"""Dramatiq's middleware that makes letters of what its workers give up.

    before_nack   it is dead: retries are over, its error is among `throws`, it is too old, its actor is not known
    before_ack    it is done; or its last attempt failed, and nobody has enqueued it again: then it is dead, too

A report is on disk before the broker is told. Nothing is asked of the broker, and what succeeds costs two calls that
Dramatiq makes of every middleware anyway.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from dramatiq import Broker, Middleware, get_encoder
from dramatiq.broker import MessageProxy
from dramatiq.errors import ActorNotFound
from dramatiq.middleware import AgeLimit, Retries, SkipMessage
from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigError
from redrive.flow.attempt import type_name
from redrive.flow.lineage import LETTER
from redrive.integrations.dramatiq.envelope import (
    OPTION,
    REDIS_ID,
    UNFIT,
    attempts_before,
    fields_in,
    message_of,
    original,
    ours_in,
    queue_of,
    retries_in,
    with_failure,
    without_lineage,
)
from redrive.integrations.letters import failure_of, letter_of
from redrive.integrations.reporter import Reporter
from redrive.model import Category, Failure, Headers, Letter, Message, Reason, Stage, letter_id

log = logging.getLogger("redrive")
_STATE = "redrive"  # under this name a MessageProxy keeps what became of it


class Attempt(Struct):
    """What became of a message in a worker."""

    failure: Failure | None = None  # None: it succeeded
    before: tuple[Failure, ...] = ()
    reason: Reason = Reason.ATTEMPTS
    retried: bool = False
    reported: bool = False


class RedriveDramatiq(Middleware):
    """Makes letters of dead messages, and resolves them when a message that was sent back succeeds.

    store      the URL of the store that letters go to
    transport  what `transports` in the configuration of Redrive calls the way back: `dramatiq+amqp://…` or
               `dramatiq+redis://…`
    spool      the directory in which letters wait for the store
    fsync      a letter survives a crash of the machine, too, before its message is rejected
    version    of your code, for the failures
    """

    def __init__(
        self,
        store: str,
        *,
        transport: str = "dramatiq",
        spool: str | Path | None = None,
        fsync: bool = True,
        version: str = "",
        clock: Clock | None = None,
    ) -> None:
        if not transport:
            raise ConfigError("transport= is what the configuration of Redrive calls the way back, such as dramatiq")
        self._reporter = Reporter(store, spool=spool, fsync=fsync, clock=clock)
        self._transport = transport
        self._version = version
        self._clock = clock or SystemClock()
        self._local = threading.local()

    # -- of the worker ------------------------------------------------------------------------------------------------

    def before_worker_boot(self, broker: Broker, worker: Any) -> None:
        """Deliver what an earlier worker has left."""
        order = [type(each) for each in broker.middleware]
        if Retries in order and order.index(type(self)) < order.index(Retries):
            log.warning("RedriveDramatiq is asked before Retries: add it after that, so that it sees each attempt")
        self._reporter.start()

    def after_worker_shutdown(self, broker: Broker, worker: Any) -> None:
        self._reporter.close()

    # -- of a message -------------------------------------------------------------------------------------------------

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        if exception is None:
            if OPTION in message.options:
                vars(message)[_STATE] = Attempt()
            return
        failure = self._failure(exception, message)
        before = attempts_before(message.options)
        vars(message)[_STATE] = Attempt(failure, before, _reason(broker, message, exception))
        self._local.failing = message
        message.options[OPTION] = with_failure(message.options, failure)

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        """A middleware would not have it run. If it has failed it, too, it is dead."""
        if message.failed:
            error = sys.exc_info()[1] or SkipMessage("a middleware skipped it, and failed it")
            reason = Reason.EXPIRED if _is_too_old(broker, message) else Reason.PERMANENT
            vars(message)[_STATE] = Attempt(self._failure(error, message), attempts_before(message.options), reason)

    def after_enqueue(self, broker: Broker, message: Any, delay: int | None) -> None:
        """Note that an attempt which failed is made again."""
        failing = getattr(self._local, "failing", None)
        if failing is not None and failing.message_id == message.message_id:
            vars(failing)[_STATE].retried = True

    def before_nack(self, broker: Broker, message: MessageProxy) -> None:
        attempt = vars(message).get(_STATE)
        if attempt is None or attempt.failure is None:
            attempt = vars(message)[_STATE] = self._rejected(message)
        self._died(message, attempt)

    def before_ack(self, broker: Broker, message: MessageProxy) -> None:
        attempt = vars(message).get(_STATE)
        if attempt is None:
            return
        if attempt.failure is None:
            self._succeeded(message, attempt)
        elif not attempt.retried:  # no Retries, or it could not enqueue it: Dramatiq forgets it here
            self._died(message, attempt)
        self._local.failing = None

    # -- reports ------------------------------------------------------------------------------------------------------

    def _died(self, message: MessageProxy, attempt: Attempt) -> None:
        self._local.failing = None
        if not attempt.reported:  # Dramatiq asks again while the broker is away
            attempt.reported = True
            self._reporter.died(self._letter(message, attempt))

    def _succeeded(self, message: MessageProxy, attempt: Attempt) -> None:
        if not attempt.reported and ours_in(message.options).lineage:
            attempt.reported = True
            is_readable, made = self._message(message)
            self._reporter.succeeded(made, bare=not is_readable)

    def _letter(self, message: MessageProxy, attempt: Attempt) -> Letter:
        assert attempt.failure is not None
        is_readable, made = self._message(message)
        failures = (*attempt.before, attempt.failure)
        letter = letter_of(made, failures, transport=self._transport, now=attempt.failure.at, reason=attempt.reason)
        return letter if is_readable else replace(letter, message=without_lineage(letter.message))

    def _message(self, message: MessageProxy) -> tuple[bool, Message]:
        """The message as it was first sent, and whether we could read it: what we cannot read we cannot mark when it is
        sent back, so it is marked here."""
        fields, queue, ours = message.asdict(), queue_of(message.queue_name), ours_in(message.options)
        first = original(fields, queue)
        try:
            body = get_encoder().encode(first)
            if fields_in(body) is not None:
                return True, message_of(first, body, queue, ours=ours)
            marked, headers = self._marked(message, first, queue)
            return False, message_of(first, get_encoder().encode(marked), queue, ours=ours, headers=headers)
        except Exception as error:  # its actor has changed its arguments into what its encoder cannot say
            why = f"{type_name(error)}: its arguments cannot be encoded any more"
            body = json.dumps(first, default=lambda value: f"<{type(value).__qualname__}>").encode()
            return True, message_of(first, body, queue, ours=ours, headers=((UNFIT, why.encode()),))

    def _marked(self, message: MessageProxy, first: dict[str, Any], queue: str) -> tuple[dict[str, Any], Headers]:
        options = {**first["options"], OPTION: {"headers": {LETTER: letter_id(queue, message.message_id)}}}
        kept = message.options.get("redis_message_id")
        if not isinstance(kept, str):
            return {**first, "options": options}, ()
        return {**first, "options": {**options, "redis_message_id": kept}}, ((REDIS_ID, kept.encode()),)

    def _rejected(self, message: MessageProxy) -> Attempt:
        """It was failed before or after its actor ran, and not by an error of it."""
        error = sys.exc_info()[1]
        if not isinstance(error, ActorNotFound):
            error = SkipMessage("a middleware failed it")
        failure = replace(
            self._failure(error, message), category=Category.PERMANENT, retryable=False, stage=Stage.DELIVERY
        )
        return Attempt(failure, attempts_before(message.options), Reason.PERMANENT)

    def _failure(self, error: BaseException, message: MessageProxy) -> Failure:
        return failure_of(
            error,
            at=self._clock.now(),
            attempt=retries_in(message.options) + 1,
            worker=f"{socket.gethostname()}:{os.getpid()}",
            version=self._version,
        )


def _reason(broker: Broker, message: MessageProxy, error: BaseException) -> Reason:
    throws = message.options.get("throws") or broker.get_actor(message.actor_name).options.get("throws")
    return Reason.PERMANENT if throws and isinstance(error, throws) else Reason.ATTEMPTS


def _is_too_old(broker: Broker, message: MessageProxy) -> bool:
    """Whether AgeLimit has skipped it."""
    limits = [each.max_age for each in broker.middleware if isinstance(each, AgeLimit)]
    if not limits:
        return False
    actor = broker.actors.get(message.actor_name)
    limit = message.options.get("max_age") or (actor and actor.options.get("max_age", limits[0])) or limits[0]
    age = SystemClock().now().timestamp() * 1000 - message.message_timestamp
    return isinstance(limit, int | float) and 0 < limit <= age
