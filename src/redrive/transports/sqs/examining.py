"""Checks of `redrive doctor`: how the queues are set up, and what we may do with them. It changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from redrive.errors import ConfigError
from redrive.transports.base import Advice, Demand
from redrive.transports.sqs.api import Api, Refusal
from redrive.transports.sqs.leases import LONGEST
from redrive.transports.sqs.options import Options
from redrive.transports.sqs.queues import Queues
from redrive.untrusted import UNREADABLE, read_json

_SET = "aws sqs set-queue-attributes --queue-url {url} --attributes {what}"
_BATCHES = ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")
_RIGHTS = {
    "SendMessageBatch": "sqs:SendMessage",
    "DeleteMessageBatch": "sqs:DeleteMessage",
    "ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
}


class Found(Struct, frozen=True):
    """How a queue is set up, and the dead-letter queue that it names."""

    name: str
    url: str
    said: Mapping[str, str]
    dead: Mapping[str, str] | None = None  # what the dead-letter queue says, if there is one
    dead_url: str = ""

    def span(self, name: str) -> timedelta | None:
        return _span(self.said.get(name))

    @property
    def policy(self) -> dict[str, Any] | None:
        """Its redrive policy; None, if it has none."""
        try:
            found = read_json(self.said.get("RedrivePolicy", "").encode())
        except UNREADABLE:
            return None
        return found if isinstance(found, dict) else None

    @property
    def most_receives(self) -> int | None:
        said = str((self.policy or {}).get("maxReceiveCount") or "")
        return int(said) if said.isdecimal() and len(said) < 6 else None


class Examiner:
    """Looks at the queues of some sources."""

    def __init__(self, api: Api, queues: Queues, options: Options) -> None:
        self._api = api
        self._queues = queues
        self._options = options

    async def advice(self, demands: Sequence[Demand]) -> list[Advice]:
        """What there is to mend, source by source."""
        return [advice for demand in demands for advice in await self._of(demand)]

    async def _of(self, demand: Demand) -> list[Advice]:
        name = self._queues.name_of(demand.source)
        try:
            queue = await self._queues.get(demand.source, make=False)
        except ConfigError as error:
            return [Advice(str(error), "correct the name of the handler's source", True)]
        except Refusal as error:
            return [self._missing(name, error)]
        denied = [right async for right in self._denied(queue.url)]
        if denied:
            return [_rights(name, denied)]
        found = await self._looked_at(name, queue.url)
        return list(examined(found, demand, fifo=self._options.fifo))

    def _missing(self, name: str, error: Refusal) -> Advice:
        if error.is_denied:
            return _rights(name, ["sqs:GetQueueUrl"])
        if not error.is_missing:
            raise error
        mend = "start a worker: it makes it" if self._options.create else "make it, or leave create=no out of the URL"
        return Advice(f"there is no queue {name}", mend, not self._options.create)

    async def _denied(self, url: str) -> AsyncIterator[str]:
        """The rights that we lack. A batch without entries does nothing: who would let us refuses it for that."""
        try:
            await self._api.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
        except Refusal as error:
            if error.is_denied:
                yield "sqs:GetQueueAttributes"
        for action in _BATCHES:
            try:
                await self._api.call(action, QueueUrl=url, Entries=[])
            except Refusal as error:
                if error.is_denied:
                    yield _RIGHTS[action]

    async def _looked_at(self, name: str, url: str) -> Found:
        found = Found(name, url, await self._attributes(url))
        dead = str((found.policy or {}).get("deadLetterTargetArn") or "").rpartition(":")[2]
        if not dead:
            return found
        try:
            dead_url = (await self._api.call("GetQueueUrl", QueueName=dead))["QueueUrl"]
            return Found(name, url, found.said, await self._attributes(dead_url), dead_url)
        except Refusal:  # in another account, or not ours to look at
            return found

    async def _attributes(self, url: str) -> Mapping[str, str]:
        answer = await self._api.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
        return {name: str(value) for name, value in (answer.get("Attributes") or {}).items()}


def examined(found: Found, demand: Demand, *, fifo: bool) -> Iterator[Advice]:
    """Pure: what is wrong with a queue, for a handler that demands so much."""
    if demand.timeout >= LONGEST:
        yield Advice(
            f"the handler of {demand.source} may take {demand.timeout}, and SQS lends a message for 12 hours at most",
            "give it a timeout= below that",
            True,
        )
    yield from _receives(found, demand, fifo=fifo)
    yield from _visibility(found, demand)
    yield from _retention(found, demand, fifo=fifo)


def _receives(found: Found, demand: Demand, *, fifo: bool) -> Iterator[Advice]:
    most = found.most_receives
    if most is None:
        yield Advice(
            f"queue {found.name} has no redrive policy: what other consumers cannot handle comes again until SQS "
            "deletes it at the end of its retention",
            _mend(found, "file://policy.json", "with a RedrivePolicy of deadLetterTargetArn and maxReceiveCount"),
        )
    elif most == 1:
        yield Advice(
            f"queue {found.name} has maxReceiveCount 1: a message whose worker ends once goes to the dead-letter queue "
            "and is never tried again",
            _mend(found, "file://policy.json", f"with maxReceiveCount {demand.attempts + 1} or more"),
        )
    elif most < demand.attempts or (fifo and most == demand.attempts):
        why = "every attempt is a receive" if fifo else "a message that takes its workers down goes there first"
        yield Advice(
            f"queue {found.name} has maxReceiveCount {most}, and its handler tries {demand.attempts} times: {why}",
            _mend(found, "file://policy.json", f"with maxReceiveCount {demand.attempts + 1} or more"),
        )


def _visibility(found: Found, demand: Demand) -> Iterator[Advice]:
    visible = found.span("VisibilityTimeout")
    if visible is not None and visible < demand.timeout:
        yield Advice(
            f"queue {found.name} has a visibility timeout of {_shown(visible)}, shorter than its handler's timeout "
            f"({_shown(demand.timeout)}): our workers renew their leases, other consumers would get a message twice",
            _mend(found, f"VisibilityTimeout={round(demand.timeout.total_seconds())}"),
        )


def _retention(found: Found, demand: Demand, *, fifo: bool) -> Iterator[Advice]:
    kept = found.span("MessageRetentionPeriod")
    needed = demand.timeout + (demand.waits if fifo else demand.longest_wait)
    if kept is not None and kept < needed:
        yield Advice(
            f"queue {found.name} keeps messages for {_shown(kept)}, and one can wait {_shown(needed)} for its "
            "attempts: SQS would delete it while it waits",
            _mend(found, f"MessageRetentionPeriod={min(1209600, round(needed.total_seconds() * 2))}"),
            True,
        )
    dead = _span(found.dead.get("MessageRetentionPeriod")) if found.dead is not None else None
    if kept is not None and dead is not None and dead < kept:
        yield Advice(
            f"the dead-letter queue of {found.name} keeps messages for {_shown(dead)}, shorter than the queue itself "
            f"({_shown(kept)}), and counts from when they were first sent: some are deleted as soon as they arrive",
            _SET.format(url=found.dead_url, what="MessageRetentionPeriod=1209600"),
        )


def _rights(name: str, rights: Sequence[str]) -> Advice:
    listed = ", ".join(rights)
    return Advice(f"we lack rights on queue {name}: {listed}", f"allow our role or user {listed} on it", True)


def _mend(found: Found, what: str, note: str = "") -> str:
    return f"{_SET.format(url=found.url, what=what)}{f' ({note})' if note else ''}"


def _span(said: str | None) -> timedelta | None:
    return timedelta(seconds=int(said)) if said and said.isdecimal() and len(said) < 9 else None


def _shown(span: timedelta) -> str:
    return f"{span.total_seconds():g} s" if span < timedelta(minutes=2) else str(span)
