"""One retry of one task: run the callback, and write down what became of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.flow.classify import Classifier
from redrive.model import OPEN, Failure, Letter, Owner, State
from redrive.stores.base import Entry, EntryStatus, Store
from redrive.systems.workflow.policies import Policies
from redrive.systems.workflow.task import SOURCE, FailedTask, body_of, failure_of, group_of, policy_of
from redrive.telemetry.events import Events, LeaseLost, LetterResolved, MessageBuried

Callback: TypeAlias = Callable[[dict[str, Any], list[str]], Awaitable[Any] | Any]
"""Called with the task and its repositories; it fails by raising, or by an answer that says so."""
CURRENT: ContextVar[Letter | None] = ContextVar("redrive_workflow_retry", default=None)
"""The letter whose retry the running code is part of."""
_FAILED = ("failed", "failure", "error", "partial", "timeout", "cancelled")


class ErrorText(str):
    """What is said of an error, as text that goes into any result, and the error itself, by which it is classified."""

    cause: BaseException

    @classmethod
    def of(cls, error: BaseException) -> ErrorText:
        text = cls(f"{type(error).__name__}: {error}")
        text.cause = error
        return text


class RetryTimeout(TimeoutError):
    """The callback took longer than a retry may."""


class Attempted(Struct, frozen=True):
    """What a callback came to."""

    letter: Letter
    value: Any = None
    error: BaseException | str | None = None
    repos: tuple[str, ...] | None = None  # those that are left to do, where it says so
    confirmed: bool = False  # the claim was found to be still ours


async def attempt(callback: Callback, letter: Letter, timeout: timedelta) -> Attempted:
    """Never raises for what a callback does. One that hangs is given up, even if it does not let itself be stopped."""
    task = FailedTask(letter)
    running = asyncio.ensure_future(_call(callback, letter, task.task, task.repos))
    try:
        done, _ = await asyncio.wait([running], timeout=timeout.total_seconds())
    except asyncio.CancelledError:
        running.cancel()
        raise
    if not done:
        running.cancel()
        running.add_done_callback(_forget)
        return Attempted(letter, error=RetryTimeout(f"the retry took longer than {timeout}"))
    if running.cancelled():
        return Attempted(letter, error="the retry was cancelled from within")
    if (error := running.exception()) is not None:
        return Attempted(letter, error=error)
    return _judged(letter, task, running.result())


async def _call(callback: Callback, letter: Letter, task: dict[str, Any], repos: list[str]) -> Any:
    CURRENT.set(letter)
    try:
        answer = callback(task, repos)
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt) as error:  # a task that raises these would end the loop itself
        raise RuntimeError(f"the callback raised {type(error).__name__}: {error}") from error


def _forget(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _judged(letter: Letter, task: FailedTask, answer: Any) -> Attempted:
    """`{"success": False}`, `{"status": "failed"}` and False say that it failed; everything else that it did not."""
    if answer is False:
        return Attempted(letter, value=answer, error="the callback returned False")
    if not isinstance(answer, Mapping) or not _says_failed(answer):
        return Attempted(letter, value=answer)
    left = answer.get("failed_repos")
    narrowed = isinstance(left, list | tuple) and 0 < len(left) < len(task.repos) and set(left) <= set(task.repos)
    return Attempted(letter, value=answer, error=error_in(answer), repos=tuple(left) if left and narrowed else None)


def _says_failed(answer: Mapping[str, Any]) -> bool:
    if "success" in answer:
        return not answer["success"]
    return str(answer.get("status", "")).lower() in _FAILED


def error_in(answer: Mapping[str, Any]) -> BaseException | str:
    """Why it failed, as the answer says it."""
    for name in ("error", "errors", "last_error", "message"):
        found = answer.get(name)
        if isinstance(found, ErrorText):
            return found.cause
        if isinstance(found, BaseException):
            return found
        if found:
            return found if isinstance(found, str) else repr(found)
    return f"the workflow ended as {answer.get('status', 'failed')!s}, and did not say why"


class Outcomes:
    """Writes what became of retries: a success resolves the task, a failure schedules the next or exhausts it."""

    def __init__(
        self,
        store: Store,
        events: Events,
        clock: Clock,
        now: Callable[[], datetime],
        *,
        policies: Policies,
        classifier: Classifier,
        owner: Owner,
    ) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._now = now
        self._policies = policies
        self._classifier = classifier
        self._owner = owner

    async def resolve(self, letter: Letter) -> None:
        """From any open state: that it succeeded is a fact, whoever has it by now."""
        now = self._now()
        await self._mark(letter, EntryStatus.RESOLVED, now)
        if await self._store.letters.move([letter.id], expect=OPEN, to=State.RESOLVED, now=now):
            self._events.emit(LetterResolved(source=SOURCE, letter=letter.id, replay=letter.replay))

    async def confirm(self, letter: Letter) -> bool:
        """Whether it is still ours to say that it failed: nobody else may have it while we write so."""
        mine = [State.RETRYING, State.REPLAYING]
        for state in mine:
            if await self._store.letters.move(
                [letter.id], expect=[state], to=state, owner=letter.owner, now=self._now()
            ):
                return True
        self._events.emit(LeaseLost(source=SOURCE, messages=(letter.message.id,)))
        return False

    async def fail(self, attempted: Attempted) -> Letter:
        """One more failure of the task, and what follows from it."""
        letter = attempted.letter
        failed = self.failed(attempted)
        await self._mark(letter, EntryStatus.FAILED, failed.updated_at, failed.last.message)
        await self._store.letters.record([failed])
        self._events.emit(buried(failed))
        return failed

    def failed(self, attempted: Attempted) -> Letter:
        """Pure but for the time: the letter as the failure leaves it."""
        letter, now = attempted.letter, self._now()
        failure = self._failure(attempted, now)
        state, due = self._next(letter, now)
        message = letter.message
        if attempted.repos is not None:
            message = replace(message, body=body_of(FailedTask(letter).task, attempted.repos))
        return replace(
            letter,
            message=message,
            failures=(*letter.failures, failure),
            state=state,
            next_retry_at=due,
            group=group_of(failure),
            updated_at=now,
            owner=None,
            lease_until=None,
        )

    def _failure(self, attempted: Attempted, now: datetime) -> Failure:
        assert attempted.error is not None
        number = len(attempted.letter.failures) + 1
        return failure_of(
            attempted.error, self._classifier, category=None, at=now, attempt=number, worker=self._owner
        )  # fmt: skip

    def _next(self, letter: Letter, now: datetime) -> tuple[State, datetime | None]:
        """A retry by a person uses none of the automatic ones up, and leaves their plan as it was."""
        if letter.state is State.REPLAYING:
            due = letter.next_retry_at if letter.replay is None else None
            return (State.EXHAUSTED if due is None else State.PENDING), due
        if letter.retries >= letter.max_retries:
            return State.EXHAUSTED, None
        wait = self._policies.backoff(policy_of(letter)).delay(letter.retries + 1, self._clock.rng)
        return (State.EXHAUSTED, None) if wait is None else (State.PENDING, now + wait)

    async def _mark(self, letter: Letter, status: EntryStatus, now: datetime, note: str = "") -> None:
        if letter.state is State.REPLAYING and letter.replay is not None:
            await self._store.ledger.mark([Entry(letter.replay, letter.id, status, now, note[:200])])


def buried(letter: Letter) -> MessageBuried:
    """The fact that a task failed, once more or for the first time."""
    return MessageBuried.of(letter, SOURCE)


__all__ = ["CURRENT", "Attempted", "Callback", "ErrorText", "Outcomes", "RetryTimeout", "attempt", "buried", "error_in"]
