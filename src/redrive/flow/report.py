"""The events of a batch that was settled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.flow.context import Context
from redrive.flow.decision import Decision
from redrive.model import Bury, Done, Letter, Reason, Release, Retry
from redrive.telemetry.events import BatchSettled, KeysHeld, LeaseLost, MessageBuried, MessageRetried
from redrive.transports.base import Delivery

_BEHIND = Bury(Reason.BEHIND)


def report(
    context: Context,
    plain: Sequence[Decision],
    others: Sequence[Decision],
    buried: Sequence[Letter],
    lost: Sequence[Delivery],
) -> None:
    """Called once all of it is done: a batch that has to be carried out again is reported once."""
    for letter in buried:
        context.events.emit(MessageBuried.of(letter, context.source))
    counts = {Done: len(plain), Retry: 0, Bury: 0, Release: 0}
    behind = 0
    for item in others:
        counts[type(item.outcome)] += 1
        behind += item.outcome == _BEHIND
        if isinstance(item.outcome, Retry) and item.failure is not None:
            _report_retried(context, item, item.outcome.after)
    context.events.emit(
        BatchSettled(
            source=context.source,
            done=counts[Done],
            retried=counts[Retry],
            buried=counts[Bury] - behind,
            behind=behind,
            released=counts[Release],
            seconds=tuple([item.seconds for item in plain] + [item.seconds for item in others]),
        )
    )
    if context.storm is not None:
        context.storm.settled(counts[Done], counts[Retry], counts[Bury] - behind)
    if behind:
        context.events.emit(KeysHeld(source=context.source, count=behind))
    if lost:
        context.events.emit(LeaseLost(source=context.source, messages=tuple(delivery.message.id for delivery in lost)))


def _report_retried(context: Context, item: Decision, after: timedelta) -> None:
    message = item.delivery.message
    assert item.failure is not None
    context.events.emit(
        MessageRetried(
            source=context.source,
            message=message.id,
            tenant=message.tenant,
            correlation_id=message.correlation_id,
            failure=item.failure,
            after=after,
        )
    )
