"""What was decided of a message and could not be written, because a store or a dead-letter place does not take it now.

    attempt ─▶ decided ─▶ not written: given back ─▶ comes again ─▶ decided as before ─▶ written

Nothing is attempted a second time for the sake of writing it. The worker remembers its decisions. Another worker, or
the next one, sees by the last failure of a message that it was to be buried, where the transport keeps failures.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from redrive.flow.context import Context
from redrive.flow.decide import decide
from redrive.flow.decision import Decision
from redrive.flow.lineage import Lineage, lineage
from redrive.model import Bury, Failure, Message, Outcome, Stage
from redrive.transports.base import Delivery

_MOST = 10_000
"""Decisions that are remembered; a message whose decision is forgotten is attempted again."""


class _Remembered(NamedTuple):
    body: int  # its hash: another message can have been sent under the same id
    origin: Lineage | None
    outcome: Outcome
    failure: Failure | None


class Unwritten:
    """The decisions of one consumer that could not be written."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.remembered: dict[tuple[str, str], _Remembered] = {}

    def remember(self, decisions: Iterable[Decision]) -> None:
        """Keep those that were attempted; of the others everything is decided anew."""
        for item in decisions:
            if item.failure is not None and item.failure.stage is Stage.DELIVERY:
                continue
            message = item.delivery.message
            self.remembered[_name(message)] = _Remembered(
                hash(message.body), lineage(message), item.outcome, item.failure
            )
        while len(self.remembered) > _MOST:
            del self.remembered[next(iter(self.remembered))]

    def decision(self, delivery: Delivery) -> Decision | None:
        """What was decided of it before, and is to be written now. None: it may be attempted."""
        message = delivery.message
        found = self.remembered.pop(_name(message), None)
        if found is not None and (found.body, found.origin) == (hash(message.body), lineage(message)):
            return Decision(delivery, found.outcome, found.failure)
        return self._by_history(delivery)

    def _by_history(self, delivery: Delivery) -> Decision | None:
        """A message is retried after a failure that allows it: one whose last failure does not was to be buried."""
        if not delivery.failures:
            return None
        context, last = self._context, delivery.failures[-1]
        message = replace(delivery.message, attempt=last.attempt, expires_at=None)
        outcome = decide(message, last, context.policy_for(delivery), last.at, context.clock.rng)
        return Decision(delivery, outcome, last) if isinstance(outcome, Bury) else None


def _name(message: Message) -> tuple[str, str]:
    return message.id, message.origin
