"""One attempt: decode, run the handler, and turn whatever happens into None (success) or a Failure."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from redrive.flow.context import Context
from redrive.flow.deadline import Deadline
from redrive.flow.decide import admit
from redrive.forensics.fingerprint import own_frames, stack_text
from redrive.model import Category, Failure, Message, Reason, Stage

_LONGEST_MESSAGE = 4_000


class AttemptTimeout(TimeoutError):
    """The attempt took longer than its policy allows."""


async def attempt(context: Context, message: Message, deadline: Deadline) -> Failure | None:
    """Never raises for what a handler does, SystemExit included; only our own end goes through: a cancellation,
    Ctrl-C where nobody catches the signal, and the closing of the coroutine itself."""
    handler = context.handler
    try:
        body = handler.decode(message.body, message) if handler.decode_wants_message else handler.decode(message.body)
    except Exception as error:
        return undecodable(context, message, error)
    try:
        with deadline:
            if context.span is None:
                await (handler.call(body, message) if handler.wants_message else handler.call(body))
            else:
                with context.span(message):
                    await (handler.call(body, message) if handler.wants_message else handler.call(body))
    except asyncio.CancelledError as error:
        if _we_are_cancelled():
            raise
        return failure(context, message, error)
    except TimeoutError as error:
        if deadline.expired:
            place = (error.__cause__ or error).__traceback__  # where in the handler it was stopped
            error = AttemptTimeout(f"the attempt took longer than {deadline.span}").with_traceback(place)
        return failure(context, message, error)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        return failure(context, message, error)
    return None


def failure(context: Context, message: Message, error: BaseException) -> Failure:
    """What went wrong, as plain data."""
    verdict = context.classifier(error)
    return Failure(
        type=type_name(error),
        message=text_of(error),
        category=verdict.category,
        retryable=verdict.retryable,
        code=verdict.code,
        at=context.clock.now(),
        attempt=message.attempt,
        stack=stack_text(error),
        frames=own_frames(error),
        worker=context.worker,
        version=context.version,
    )


def undecodable(context: Context, message: Message, error: Exception) -> Failure:
    """The body is not what the handler takes. No retry will change the bytes."""
    return Failure(
        type=type_name(error),
        message=text_of(error),
        category=Category.VALIDATION,
        retryable=False,
        stage=Stage.DECODE,
        at=context.clock.now(),
        attempt=message.attempt,
        stack=stack_text(error),
        worker=context.worker,
        version=context.version,
    )


class Refusal(NamedTuple):
    """Why a message is buried without an attempt."""

    reason: Reason
    failure: Failure


def refusal(context: Context, message: Message) -> Refusal | None:
    """None: it may be attempted."""
    reason = admit(message, context.policy, context.body_limit, context.clock.now())
    if reason is None:
        return None
    type, text, category = _why(reason, message, context)
    return Refusal(
        reason,
        Failure(
            type=type,
            message=text,
            category=category,
            retryable=False,
            stage=Stage.DELIVERY,
            at=context.clock.now(),
            attempt=message.attempt,
            worker=context.worker,
            version=context.version,
        ),
    )


def _why(reason: Reason, message: Message, context: Context) -> tuple[str, str, Category]:
    """Type, message and category of a failure that came before any attempt."""
    match reason:
        case Reason.CRASHED:
            tried = message.attempt - 1
            return (
                "redrive.Crashed",
                f"delivered {tried} times and settled by nobody: it takes its worker down, or outlives its lease",
                Category.PERMANENT,
            )
        case Reason.EXPIRED:
            return "redrive.Expired", f"its time to live ended at {message.expires_at}", Category.PERMANENT
        case _:
            size = f"{len(message.body):,} bytes, over the limit of {context.body_limit:,} (`body_limit`)"
            return "redrive.TooLarge", size, Category.VALIDATION


def type_name(error: BaseException) -> str:
    """`ValueError`, or `stripe.CardError` for what is not built in."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Its message, whatever its __str__ does, bounded, and storable as UTF-8."""
    try:
        text = str(error)
    except Exception as second:
        text = f"(its __str__ raised {type(second).__name__})"
    return text[:_LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()


def _we_are_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
