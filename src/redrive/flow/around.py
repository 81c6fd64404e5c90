"""What runs around a handler: user code that sees each message before its handler is called, and what came of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from redrive.errors import ConfigError
from redrive.flow.callables import is_async, name_of
from redrive.model import Message

Call: TypeAlias = Callable[[], Awaitable[Any]]
"""Calls the handler, and returns what it returns."""
Around: TypeAlias = Callable[[Any, Call], Awaitable[Any]]
"""`async def around(message, call): ... await call() ...`, as middleware in web frameworks. Around a batch
handler it gets the list of Messages."""


def arounds(given: Around | Sequence[Around] | None) -> tuple[Around, ...]:
    """The wrappers as a tuple, the outermost first; refuses what cannot be one."""
    found = () if given is None else tuple(given) if isinstance(given, Sequence) else (given,)
    for around in found:
        _check(around)
    return found


def wrapped(
    call: Callable[..., Awaitable[Any]], wants_message: bool, around: Around
) -> Callable[[Any, Message], Awaitable[Any]]:
    """The call with the wrapper around it. It takes the body and the Message."""

    async def called(body: Any, message: Message) -> Any:
        return await around(message, partial(call, body, message) if wants_message else partial(call, body))

    return called


def wrapped_batch(
    call: Callable[..., Awaitable[Any]], wants_messages: bool, arounds: Sequence[Around]
) -> Callable[[list[Any], list[Message]], Awaitable[Any]]:
    """The call of a batch handler with the wrappers around it. They get the list of Messages. What the handler said of
    each message is not for them to pass on: it is kept, whatever they return."""

    async def called(bodies: list[Any], messages: list[Message]) -> Any:
        outcomes: Any = None

        async def innermost(bodies: list[Any], messages: list[Message]) -> Any:
            nonlocal outcomes
            outcomes = await (call(bodies, messages) if wants_messages else call(bodies))
            return outcomes

        outer: Callable[..., Awaitable[Any]] = innermost
        for around in reversed(arounds):
            outer = wrapped(outer, True, around)
        await outer(bodies, messages)
        return outcomes

    return called


def _check(around: Any) -> None:
    help = "write `async def around(message, call): ...`, and `await call()` in it"
    if not callable(around):
        raise ConfigError(f"around={around!r}: it is no function; {help}")
    if not is_async(around):
        raise ConfigError(f"around={name_of(around)} is not async; {help}")
    try:
        inspect.signature(around).bind(None, None)
    except TypeError:
        raise ConfigError(f"around={name_of(around)} does not take two arguments; {help}") from None
