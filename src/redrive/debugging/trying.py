"""One message through a handler, as a worker would attempt it: decoded by its annotation, inside its `around`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from redrive.debugging.handlers import Found
from redrive.errors import NotNow, UsageError
from redrive.flow.attempt import attempt, failure, undecodable
from redrive.flow.batch_attempt import Piece, call
from redrive.flow.context import Handler
from redrive.flow.deadline import Deadline, Deadlines
from redrive.model import Failure, Message
from redrive.transports.base import Delivery

_PATIENT = timedelta(days=7)


async def tried(found: Found, message: Message) -> Failure | None:
    """What a worker would write down of it; None: it succeeds. Nothing is settled, buried or resolved."""
    check(found.handler)
    context, deadline = found.app.context(found.handler), Deadline(Deadlines(found.handler.timeout))
    try:
        if found.handler.batch is None:
            return await attempt(context, message, deadline)
        try:
            body = decoded(found.handler, message)
        except Exception as error:
            return undecodable(context, message, error)
        called = await call(context, Piece([Delivery(message, None)], [body]), deadline)
    except NotNow as error:
        return failure(context, message, error)
    failed = called.whole or called.errors.get(0)
    return None if failed is None else failure(context, message, failed)


async def handled(found: Found, message: Message) -> None:
    """The same without a time limit; what the handler raises is raised, as it is."""
    handler = found.handler
    check(handler)
    body = decoded(handler, message)
    if handler.batch is None:
        await (handler.call(body, message) if handler.wants_message else handler.call(body))
        return
    context = found.app.context(handler)
    called = await call(context, Piece([Delivery(message, None)], [body]), Deadline(Deadlines(_PATIENT)))
    error = called.whole or called.errors.get(0)
    if error is not None:
        raise error


def decoded(handler: Handler, message: Message) -> Any:
    """The body as the handler gets it."""
    return handler.decode(message.body, message) if handler.decode_wants_message else handler.decode(message.body)


def check(handler: Handler) -> None:
    """Raise UsageError for a handler that cannot run away from its database."""
    if handler.exactly_once:
        raise UsageError(
            f"{handler.name} has exactly_once=True: it runs within a transaction of its queue's database, which is not "
            "there. Try the function that it calls instead, or write the part that fails as one of its own"
        )
