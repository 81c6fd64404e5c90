"""One call of the callback: it fails by raising, or by an answer that says so."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias

from msgspec import Struct

from redrive.model import Letter, LetterId

Callback: TypeAlias = Callable[[dict[str, Any], list[str]], Awaitable[Any] | Any]
"""Called with the task and its repositories."""
CURRENT: ContextVar[Letter | None] = ContextVar("redrive_workflow_retry", default=None)
"""The letter whose retry the running code is part of."""
FAILED = frozenset({"failed", "failure", "error", "partial", "timeout", "cancelled"})
"""What a `status` says, in any case, of an execution or a retry that did not succeed."""


class ReportedError(Exception):
    """A failure that was reported as text only. A letter shows it as `Error`: no type of ours says more."""


ReportedError.__module__, ReportedError.__qualname__ = "builtins", "Error"


class ErrorText(str):
    """What is said of an error, as text that goes into any result, and the error itself, by which it is classified."""

    cause: BaseException

    @classmethod
    def of(cls, error: BaseException) -> ErrorText:
        text = cls(f"{type(error).__name__}: {error}")
        text.cause = error
        return text


class Answer(Struct, frozen=True):
    """What a callback returned, and which repositories are left to do, where it says so."""

    value: Any = None
    left: list[str] | None = None


class Calls:
    """The handler of tasks: runs the callback, raises what it says to have failed, and remembers its answer."""

    def __init__(self, callback: Callback | None) -> None:
        self.callback = callback
        self._answers: dict[LetterId, Answer] = {}

    async def handle(self, work: dict[str, Any]) -> None:
        letter = CURRENT.get()
        assert letter is not None
        assert self.callback is not None
        value = await called(self.callback, work["task"], work["repos"])
        error = failed_with(value)
        self._answers[letter.id] = Answer(value, None if error is None else left_of(value, work["repos"]))
        if error is not None:
            raise error

    def answer(self, letter: Letter) -> Answer:
        """That of its last call, once."""
        return self._answers.pop(letter.id, Answer())


async def called(callback: Callback, task: dict[str, Any], repos: list[str]) -> Any:
    """What it answers. In a task of its own: one that does not let itself be stopped is left behind."""
    running = asyncio.ensure_future(_call(callback, task, repos))
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        running.cancel()
        running.add_done_callback(_forget)
        raise
    if running.cancelled():
        raise ReportedError("the retry was cancelled from within")
    return running.result()


async def _call(callback: Callback, task: dict[str, Any], repos: list[str]) -> Any:
    try:
        answer = callback(task, repos)
        return await answer if inspect.isawaitable(answer) else answer
    except (SystemExit, KeyboardInterrupt) as error:  # a task that raises these would end the loop itself
        raise RuntimeError(f"the callback raised {type(error).__name__}: {error}") from error


def _forget(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def failed_with(answer: Any) -> BaseException | None:
    """`{"success": False}`, `{"status": "failed"}` and False say that it failed; everything else that it did not."""
    if answer is False:
        return ReportedError("the callback returned False")
    if not isinstance(answer, Mapping):
        return None
    has_failed = not answer["success"] if "success" in answer else has_failed_status(answer)
    return as_error(error_in(answer)) if has_failed else None


def has_failed_status(answer: Mapping[str, Any]) -> bool:
    return str(answer.get("status", "")).lower() in FAILED


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


def as_error(error: BaseException | str) -> BaseException:
    """Of a text, its words are all there is to classify it by."""
    return error if isinstance(error, BaseException) else ReportedError(error)


def left_of(answer: Any, repos: Sequence[str]) -> list[str] | None:
    """The repositories that are left to do, where the answer names some of them and not all."""
    left = answer.get("failed_repos") if isinstance(answer, Mapping) else None
    if not isinstance(left, list | tuple) or not 0 < len(left) < len(repos) or not set(left) <= set(repos):
        return None
    return list(left)
