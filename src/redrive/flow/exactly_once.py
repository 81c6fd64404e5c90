"""A handler whose work and ack are one transaction: `exactly_once=True`, where the transport is a database.

    begin ─▶ the handler writes ─▶ its letter, if it may have one, is resolved ─▶ ack and commit, in one step

Whatever fails before the commit rolls the work back, and the message is retried or buried as its policy says.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, get_type_hints

from msgspec.structs import replace

from redrive.errors import ConfigError, NotNow
from redrive.flow.callables import name_of
from redrive.flow.context import Context
from redrive.flow.decision import Decision
from redrive.flow.settle import may_have_letter
from redrive.flow.writing import Writing
from redrive.model import Done, Message
from redrive.transports.base import CommitsWork, Delivery

Call = Callable[..., Awaitable[Any]]
_connection: ContextVar[Any] = ContextVar("redrive-connection")
_PAUSE = timedelta(seconds=1)
_DONE = Done()


def connection_parameter(function: Callable[..., Any]) -> str:
    """The name of the parameter that gets the connection: it is called so, or annotated as one. ConfigError without."""
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"{name_of(function)}: a handler with exactly_once=True is async, as its connection is")
    hints = get_type_hints(function)
    for name in inspect.signature(function).parameters:
        kind = hints.get(name)
        if name == "connection" or getattr(kind, "__name__", "") == "AsyncConnection":
            return name
    raise ConfigError(
        f"{name_of(function)}: a handler with exactly_once=True takes the connection that its work is to be written "
        "with: add a parameter `connection: psycopg.AsyncConnection`"
    )


def given_connection(function: Call, parameter: str) -> Call:
    """The handler with the connection of its transaction in that parameter."""

    async def call(*arguments: Any) -> Any:
        return await function(*arguments, **{parameter: _connection.get()})

    return call


def in_transactions(context: Context) -> Context:
    """The same context, with each attempt in a transaction that its ack is a part of."""
    handler, transport = context.handler, context.transport
    if not isinstance(transport, CommitsWork):
        raise ConfigError(
            f"the handler of {handler.source!r} asks for exactly_once=True, which needs a transport in the database "
            f"that it writes to, such as postgresql://: transport {handler.transport!r} has no transactions"
        )
    transport.commit_work(handler.source)
    inner, wants_message = handler.call, handler.wants_message

    async def call(body: Any, message: Message) -> None:
        work = transport.work(message)
        async with work as connection:
            before = _connection.set(connection)
            try:
                await (inner(body, message) if wants_message else inner(body))
            finally:
                _connection.reset(before)
            await _resolve(context, work.delivery)

    return replace(context, handler=replace(handler, call=call, wants_message=True))


async def _resolve(context: Context, delivery: Delivery) -> None:
    """Resolve the letter of a message that came back before its ack, as everywhere: a crash between repeats work."""
    done = Decision(delivery, _DONE)
    if may_have_letter(context, done):
        writing = Writing(context, _PAUSE)
        await writing.resolve([done])
        if writing.given_back:
            raise NotNow("the store does not answer: its letter could not be resolved", pause=_PAUSE)
