"""One attempt: decode, run the handler, and turn whatever happens into None (success) or a Failure."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from redrive.errors import NotNow
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline
from redrive.flow.decide import admit
from redrive.forensics.fingerprint import own_frames, stack_text
from redrive.model import Category, Failure, LetterId, Message, Reason, Stage
from redrive.transports.base import Delivery

log = logging.getLogger("redrive")
BEHIND = "redrive.Behind"
_LONGEST_MESSAGE = 4_000


class AttemptTimeout(TimeoutError):
    """The attempt took longer than its policy allows."""


async def attempt(context: Context, message: Message, deadline: Deadline) -> Failure | None:
    """Never raises for what a handler does, SystemExit included. What goes through is our own end (a cancellation,
    Ctrl-C where nobody catches the signal, the closing of the coroutine itself), and NotNow: that was no attempt."""
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
    except BaseException as error:
        if is_ours(error):
            raise
        return failure(context, message, told(error, deadline))
    return None


def is_ours(error: BaseException) -> bool:
    """Whether what came out of a handler is no failure of it, and goes through."""
    if isinstance(error, asyncio.CancelledError):
        return _we_are_cancelled()
    return isinstance(error, KeyboardInterrupt | GeneratorExit | NotNow)


def told(error: BaseException, deadline: Deadline) -> BaseException:
    """The error as it is told of: that the time was over, if it was."""
    if not isinstance(error, TimeoutError) or not deadline.expired:
        return error
    place = (error.__cause__ or error).__traceback__  # where in the handler it was stopped
    return AttemptTimeout(f"the attempt took longer than {deadline.span}").with_traceback(place)


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


def unreadable(context: Context, message: Message, why: str) -> Failure:
    """Our own code stumbled over it: no handler has failed, and no retry will change it."""
    return Failure(
        type="redrive.Unreadable",
        message=why,
        category=Category.VALIDATION,
        retryable=False,
        stage=Stage.DELIVERY,
        at=context.clock.now(),
        attempt=message.attempt,
        worker=context.worker,
        version=context.version,
    )


def stumble(step: str, error: Exception) -> str:
    """Why a message is unreadable: the step of ours that failed, and at what."""
    log.error("a message made a step of ours fail, and is buried: %s", step, exc_info=error)
    return f"{step} failed: {type_name(error)}: {text_of(error)}"


def set_aside(context: Context, message: Message, head: LetterId) -> Failure:
    """It is not attempted: that letter of its key comes first. The same message set aside twice is the same failure."""
    return Failure(
        type=BEHIND,
        message=f"behind letter {head} of its key: it follows when that one is resolved or archived",
        category=Category.TRANSIENT,
        retryable=True,
        stage=Stage.DELIVERY,
        at=message.enqueued_at,
        attempt=message.attempt,
        version=context.version,
    )


class Refusal(NamedTuple):
    """Why a message is buried without an attempt."""

    reason: Reason
    failure: Failure


def refusal(context: Context, delivery: Delivery) -> Refusal | None:
    """None: it may be attempted."""
    message, uncountable = delivery.message, delivery.uncountable
    if delivery.unreadable:
        return Refusal(Reason.UNDECODABLE, unreadable(context, message, delivery.unreadable))
    reason = admit(message, context.most_attempts, context.body_limit, context.clock.now())
    if reason is None and not uncountable:
        return None
    if reason is None:
        reason, (type, text, category) = Reason.TOO_LARGE, _uncountable(uncountable)
    else:
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
                f"delivered {tried} times and settled by nobody: it takes its worker down, outlives its lease, or "
                "could not be buried before its worker ended",
                Category.PERMANENT,
            )
        case Reason.EXPIRED:
            return "redrive.Expired", f"its time to live ended at {message.expires_at}", Category.PERMANENT
        case _:
            size = f"{len(message.body):,} bytes, over the limit of {context.body_limit:,} (`body_limit`)"
            return "redrive.TooLarge", size, Category.VALIDATION


def _uncountable(why: str) -> tuple[str, str, Category]:
    text = f"its worker stopped or died with it, and that cannot be counted: {why}"
    return "redrive.TooLarge", text, Category.VALIDATION


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
