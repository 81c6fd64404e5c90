"""What an engine sends on, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import pytest

from redrive.model import Message
from redrive.systems.pipeline.faults import NodeFault
from redrive.systems.pipeline.outbox import Outbox
from redrive.systems.pipeline.streams import Streams
from redrive.telemetry.events import Events
from redrive.testing.builders import make_message
from redrive.testing.clock import ManualClock
from redrive.transports.base import SendResult, busy, refused
from redrive.transports.memory import MemoryTransport


class Scripted(MemoryTransport):
    """Answers, or raises, what it is told for its next sends; then it takes everything."""

    def __init__(self, clock: ManualClock, *answers: SendResult | Exception) -> None:
        super().__init__(clock=clock, lease=timedelta(minutes=1))
        self.answers = list(answers)

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        if not self.answers:
            return await super().send(messages)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer] * len(messages)


def outbox_of(clock: ManualClock, streams: Scripted) -> Outbox:
    return Outbox(cast(Streams, streams), Events(), clock)


async def test_what_is_not_taken_now_is_sent_again() -> None:
    clock = ManualClock()
    streams = Scripted(clock, busy("full"), busy("full"))
    await clock.eventually(outbox_of(clock, streams).send([make_message(source="node")]))
    assert (await streams.depths())["node"].ready == 1


async def test_what_will_never_be_taken_is_a_fault_of_the_stream() -> None:
    clock = ManualClock()
    with pytest.raises(NodeFault, match="too large"):
        await outbox_of(clock, Scripted(clock, refused("too large"))).send([make_message()])


async def test_a_bug_wakes_who_waits_and_the_next_stream_goes_on() -> None:
    clock = ManualClock()
    streams = Scripted(clock, RuntimeError("a bug"))
    outbox = outbox_of(clock, streams)
    with pytest.raises(RuntimeError, match="a bug"):
        await outbox.send([make_message(source="node")])
    await outbox.send([make_message(source="node")])
    assert (await streams.depths())["node"].ready == 1
