"""One call of a batch handler: what it says of each message, and what is tried again after a whole batch has failed.

returns None                      all are done
returns an outcome for each       None (or Done) is done, an exception is what that message failed with
raises Failed({2: error})         those failed, all others are done
raises anything else              the batch failed as a whole: it is tried again in smaller pieces
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redrive.errors import Failed, WrongOutcomes
from redrive.flow.attempt import is_ours, told
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline
from redrive.model import BatchFailure, Done
from redrive.transports.base import Delivery

_ALL_DONE: Mapping[int, BaseException] = {}


class Piece(NamedTuple):
    """Messages that are handed to the handler in one call, and what their bodies are."""

    deliveries: list[Delivery]
    bodies: list[Any]

    def __len__(self) -> int:
        return len(self.bodies)


def split(deliveries: Sequence[Delivery], how: BatchFailure) -> list[Sequence[Delivery]]:
    """What to try after these have failed as a whole, in order."""
    length = 1 if how is BatchFailure.EACH else (len(deliveries) + 1) // 2
    return [deliveries[start : start + length] for start in range(0, len(deliveries), length)]


class Called(NamedTuple):
    """What came of a call: the error of each message that failed, by its place; or of the batch as a whole."""

    errors: Mapping[int, BaseException] = _ALL_DONE
    whole: BaseException | None = None


_DONE = Called()


async def call(context: Context, piece: Piece, deadline: Deadline) -> Called:
    """Never raises for what a handler does, as `attempt` does not."""
    handler, bodies = context.handler, list(piece.bodies)  # its own list, which it may change
    messages = [delivery.message for delivery in piece.deliveries] if _asks_for_messages(context) else []
    try:
        with deadline:
            if context.batch_span is None:
                answer = await (handler.call(bodies, messages) if handler.wants_message else handler.call(bodies))
            else:
                with context.batch_span(messages):
                    answer = await (handler.call(bodies, messages) if handler.wants_message else handler.call(bodies))
        return _DONE if answer is None else Called(_failed(answer, len(piece), handler.name))
    except Failed as failed:
        return _by_place(failed, len(piece), handler.name)
    except BaseException as error:
        if is_ours(error):
            raise
        return Called(whole=told(error, deadline))


def _asks_for_messages(context: Context) -> bool:
    return context.handler.wants_message or context.batch_span is not None


def _failed(answer: Any, number: int, name: str) -> Mapping[int, BaseException]:
    """The errors in what a handler returned. Raises WrongOutcomes where that cannot be read."""
    help = "return None when all are done, or a list with one outcome for each message: None, or its exception"
    if not isinstance(answer, list | tuple):
        raise WrongOutcomes(f"batch handler {name} returned a {type(answer).__name__}: {help}")
    if len(answer) != number:
        raise WrongOutcomes(f"batch handler {name} returned {len(answer)} outcomes for {number} messages: {help}")
    for place, outcome in enumerate(answer):
        if outcome is not None and not isinstance(outcome, BaseException | Done):
            what = type(outcome).__name__
            raise WrongOutcomes(f"batch handler {name} returned a {what} as the outcome of message {place}: {help}")
    return {place: outcome for place, outcome in enumerate(answer) if isinstance(outcome, BaseException)}


def _by_place(failed: Failed, number: int, name: str) -> Called:
    wrong = next((place for place in failed.errors if not 0 <= place < number), None)
    if wrong is None:
        return Called(failed.errors)
    error = WrongOutcomes(
        f"batch handler {name} raised Failed with place {wrong}, and its list has {number} messages: places go from 0 "
        f"to {number - 1}"
    ).with_traceback(failed.__traceback__)
    error.__cause__ = failed.errors[wrong]
    return Called(whole=error)
