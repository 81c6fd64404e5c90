"""Replay straight from a DLQ topic: also of streams that another engine buried, and while no store can be asked.

What was sent is remembered beside the committed offset of the group `{pipeline.group}-replay`: asked again, only what
was not sent yet goes back.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import Struct

from redrive.access.actors import Actor
from redrive.access.approvals import Approval
from redrive.errors import TransportUnavailable, Unavailable, UsageError
from redrive.flow.lineage import sent_back
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, State
from redrive.service import Service
from redrive.service.acting import acts
from redrive.service.four_eyes import carrying_out
from redrive.stores.paging import every_letter
from redrive.systems.pipeline.dlq import Chosen, stream_in
from redrive.systems.pipeline.engine import TRANSPORT
from redrive.systems.pipeline.graph import Graph, Node
from redrive.systems.pipeline.kafka import options_for
from redrive.systems.pipeline.reader import PipelineReader
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.transports.base import Delivery
from redrive.transports.kafka.driver import NAME, Consumer, KafkaException, TopicPartition, driver_log, why
from redrive.transports.kafka.finished import NOTHING, Finished, Run, finished_in, metadata_of, runs_of
from redrive.transports.kafka.options import Options
from redrive.transports.kafka.wire import Reading

_PATIENCE = 30.0
_AT_ONCE = 500
_LOOK = 0.1
log = logging.getLogger("redrive.pipeline")


class Found(Struct, frozen=True):
    """A dead stream on the topic, as a letter."""

    letter: Letter
    partition: int
    offset: int


class _Place:
    """One partition: where the reading began, and what is sent above that."""

    def __init__(self, start: int, finished: Finished) -> None:
        self.start = start
        self.finished = finished
        self._runs = finished.runs

    def sent(self, offsets: Iterable[int]) -> None:
        self._runs = _joined([*self._runs, *runs_of(sorted(offsets))])

    def position(self) -> tuple[int, str]:
        """The first offset that was not sent, and what was sent above it."""
        start, runs = self.start, self._runs
        if runs and runs[0][0] <= start:
            start, runs = runs[0][1], runs[1:]
        return start, metadata_of(start, runs) if runs else ""


def _joined(runs: Iterable[Run]) -> list[Run]:
    """In ascending order, and as one where they touch."""
    found: list[Run] = []
    for start, end in sorted(runs):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


class DlqReading:
    """Reads a DLQ topic up to where it ends now. Everything of it blocks, and is called in a thread.

    source   the topic that its streams go back to
    """

    def __init__(self, options: Options, topic: str, source: str, now: Callable[[], datetime]) -> None:
        self._topic = topic
        self._servers = options.servers
        self._read = PipelineReader(topic, source=source)
        self._reading = Reading(topic)
        self._now = now
        self._places: dict[int, _Place] = {}
        self._consumer: Any = Consumer(
            {
                **options.client(),
                "group.id": f"{options.group}-replay",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "fetch.wait.max.ms": "10",
                "logger": driver_log,
            }
        )

    def batches(self, since: datetime | None) -> Iterator[list[Found]]:
        """Those that were not sent before, in the order of the topic."""
        left, last = self._begin(since), time.monotonic()
        while left:
            found: list[Found] = []
            for raw in self._consumer.consume(_AT_ONCE, timeout=_LOOK):
                last = time.monotonic()
                if raw.error() is not None:
                    left.discard(raw.partition())
                elif raw.offset() not in self._places[raw.partition()].finished:
                    found += self._found(raw)
            if time.monotonic() - last > _PATIENCE:
                raise TransportUnavailable(NAME, f"no answer within {_PATIENCE:g} s")
            if found:
                yield found

    def sent(self, some: Sequence[Found]) -> None:
        """Remember that those were sent."""
        touched = {found.partition for found in some}
        for number in touched:
            self._places[number].sent(found.offset for found in some if found.partition == number)
        offsets = [TopicPartition(self._topic, number, *self._places[number].position()) for number in touched]
        self._consumer.commit(offsets=offsets, asynchronous=False)

    def close(self) -> None:
        self._consumer.close()

    def _begin(self, since: datetime | None) -> set[int]:
        known = self._consumer.list_topics(self._topic, timeout=_PATIENCE).topics[self._topic]
        if known.error is not None:
            raise UsageError(f"the DLQ topic {self._topic!r} cannot be read: {known.error.str()}")
        numbers = [TopicPartition(self._topic, number) for number in known.partitions]
        for found in self._consumer.committed(numbers, timeout=_PATIENCE):
            first, _ = self._consumer.get_watermark_offsets(found, timeout=_PATIENCE)
            start = max(found.offset, first)
            finished = finished_in(found.metadata, found.offset) if start == found.offset else NOTHING
            self._places[found.partition] = _Place(start, finished)
        wanted = self._since(since) if since is not None else {}
        self._consumer.assign(
            [
                TopicPartition(self._topic, number, max(place.start, wanted.get(number, 0)))
                for number, place in self._places.items()
            ]
        )
        return set(self._places)

    def _since(self, since: datetime) -> dict[int, int]:
        """The first offset at that time or later; the end of the partition if there is none."""
        at = [TopicPartition(self._topic, number, int(since.timestamp() * 1000)) for number in self._places]
        found = self._consumer.offsets_for_times(at, timeout=_PATIENCE)
        return {place.partition: place.offset if place.offset >= 0 else self._end(place.partition) for place in found}

    def _end(self, number: int) -> int:
        end: int = self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=_PATIENCE)[1]
        return end

    def _found(self, raw: Any) -> list[Found]:
        """Nothing for what has no stream to send: it stands for a letter of the store, or never was one."""
        origin = f"{self._topic}[{raw.partition()}]@{raw.offset()}"
        headers, reading = raw.headers(), self._reading
        message = reading.full(raw, headers, origin).message if headers else reading.plain(raw, origin)
        letter = self._read(Delivery(message, None), self._now())
        if letter is None or not stream_in(letter.message.body).stream_id:
            return []
        return [Found(letter, raw.partition(), raw.offset())]


async def replay_topic(
    service: Service,
    graph: Graph,
    node: Node,
    chosen: Chosen,
    *,
    actor: Actor,
    dry_run: bool = False,
) -> int:
    """Send what is on the DLQ topic of that node back to its input topic. Returns how many streams."""
    replay = _replay_topic if dry_run else _replay_topic_as_act
    return await replay(service, graph, node, chosen, actor=actor, dry_run=dry_run, source=graph.dlq_topic(node))


async def _replay_topic(
    service: Service, graph: Graph, node: Node, chosen: Chosen, *, actor: Actor, dry_run: bool, source: str
) -> int:
    service.app.declare(*map(graph.topic, graph.nodes.values()), transport=TRANSPORT)
    options, topic = _options(service.app.settings.of(PipelineSettings)), graph.dlq_topic(node)

    @asynccontextmanager
    async def opened() -> AsyncIterator[DlqReading]:
        reading = DlqReading(options, topic, graph.topic(node), service.app.clock.now)
        try:
            yield reading
        finally:
            await asyncio.to_thread(reading.close)

    try:
        ids: list[LetterId] | None = None
        if dry_run or service.four_eyes.is_on:
            async with opened() as reading:
                ids = await _found(service, reading, chosen)
        if ids is not None and dry_run:
            return len(ids)
        approval = None if ids is None else await _approved(service, topic, ids, actor)
        token = carrying_out.set(approval)
        try:
            async with opened() as reading:
                return await _send_all(service, reading, chosen, actor, None if ids is None else frozenset(ids))
        finally:
            carrying_out.reset(token)
    except KafkaException as error:
        raise TransportUnavailable(NAME, why(error, options.servers)) from error


_replay_topic_as_act = acts("replay", even_unwritten=True)(_replay_topic)
"""The trail has it before a stream is sent, unless the store is away, which the topic outlives."""


async def _approved(service: Service, topic: str, ids: Sequence[LetterId], actor: Actor) -> Approval | None:
    """What a second person said yes to, if so many take one. Raises NeedsApproval until somebody has."""
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
    what = f"{len(ids):,} streams, straight from {topic}"
    return await service.four_eyes.check_written("replay", len(ids), digest, actor, reason="", what=what)


async def _found(service: Service, reading: DlqReading, chosen: Chosen) -> list[LetterId]:
    """The letters of the streams that would be sent."""
    found = [split async for split in _splits(service, reading, chosen)]
    return [dead.letter.id for split in found for dead in (*split.unknown, *split.dead)]


async def _send_all(
    service: Service, reading: DlqReading, chosen: Chosen, actor: Actor, only: Collection[LetterId] | None = None
) -> int:
    total = 0
    async for split in _splits(service, reading, chosen, only):
        await _send(service, split, reading, actor)
        total += len(split.unknown) + len(split.dead)
    with suppress(Unavailable):  # the trail is in the store, which may be away
        await service.note(actor, "replay", f"{total:,} streams, straight from the DLQ topic")
    return total


async def _splits(
    service: Service, reading: DlqReading, chosen: Chosen, only: Collection[LetterId] | None = None
) -> AsyncIterator[_Split]:
    """What is chosen of the topic, and of `only` these, a batch at a time."""
    batches, left = reading.batches(chosen.since), chosen.limit
    while left != 0 and (batch := await asyncio.to_thread(next, batches, None)) is not None:
        wanted = [found for found in batch if chosen.kind in (None, found.letter.last.code)]
        wanted = wanted if only is None else [found for found in wanted if found.letter.id in only]
        split = await _split(service, wanted[:left])
        left = None if left is None else left - len(split.unknown) - len(split.dead)
        yield split


class _Split(NamedTuple):
    unknown: list[Found]  # the store has no letter of it, or cannot be asked
    dead: list[Found]  # the store has its letter, and nobody has sent it back


async def _split(service: Service, some: Sequence[Found]) -> _Split:
    query = Query(ids=tuple(found.letter.id for found in some))
    try:
        states = {letter.id: letter.state async for letter in every_letter(service.app.store.letters, query)}
    except Unavailable as error:
        log.warning("the store cannot say which streams were sent back already: all go (%s)", error)
        return _Split(list(some), [])
    return _Split(
        [found for found in some if found.letter.id not in states],
        [found for found in some if states.get(found.letter.id) in (State.PENDING, State.EXHAUSTED)],
    )


async def _send(service: Service, split: _Split, reading: DlqReading, actor: Actor) -> None:
    """Those that have a letter go as every replay goes; the others straight from the topic."""
    now = service.app.clock.now()
    if split.unknown:
        with suppress(Unavailable):
            await load_keys(service.app.store, now)
        streams = [sent_back(found.letter, now=now, by_hand=True) for found in split.unknown]
        await service.app.send_messages(streams)
        await asyncio.to_thread(reading.sent, split.unknown)
    if split.dead:
        await service.retry([found.letter.id for found in split.dead], actor=actor)


def _options(own: PipelineSettings) -> Options:
    if not own.transport.startswith(("kafka://", "kafka+ssl://")):
        raise UsageError("streams do not travel on Kafka here: the DLQ of a node is its letters, so replay those")
    return options_for(own.transport, own.group)
