"""What the brokers know: which topics there are, how far they reach, and how far a group has come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from redrive.drivers.reach import misunderstood, unreachable
from redrive.errors import TransportUnavailable
from redrive.transports.kafka.driver import (
    AWAY,
    NAME,
    REFUSED,
    STARTING,
    UNWELCOME,
    AdminClient,
    ConfigResource,
    Consumer,
    KafkaError,
    KafkaException,
    NewTopic,
    TopicPartition,
    inner,
    quietly,
    why,
)
from redrive.transports.kafka.options import Options
from redrive.transports.kafka.shelf import Place

T = TypeVar("T")
_PATIENCE = 10.0
_FIRST = 2.0  # so long the first answer is waited for: who is not there is told of within 5 s
_TICK = 1.0
_AGAIN = 0.2


async def meet(options: Options) -> None:
    """Raise soon, with what was tried and what to do, unless a broker answers."""
    topics = Topics(options)
    try:
        await topics.check()
    finally:
        await topics.aclose()


class Topics:
    """Asks in a thread, because the driver blocks; raises TransportUnavailable when nobody answers."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client: Any = None
        self._consumer: Any = None
        self._refusal: KafkaError | None = None  # why a broker would not talk to us, as the driver heard it last
        self._is_refused = False  # whether that was about who we are
        self.answered = False  # whether a broker ever has

    async def check(self) -> None:
        """Raise unless a broker answers. A refusal is raised at once, not when the time is over."""
        await self._ask(lambda admin: self._listed(admin, _PATIENCE))

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has; raises if there is no such topic."""
        found = await self._ask(lambda admin: admin.list_topics(topic, timeout=_PATIENCE).topics[topic])
        if found.error is not None:
            raise TransportUnavailable(NAME, why(found.error, self._options.servers, topic))
        return len(found.partitions)

    async def make(self, topics: Sequence[str], partitions: int) -> None:
        """Create the topics that are missing."""
        await self._ask(lambda admin: _make(admin, topics, partitions))

    async def missing(self, topics: Sequence[str], made_on_sending: Sequence[str] = ()) -> list[str]:
        """Those that are not there.

        made_on_sending   more topics, which a broker may be set to make when something is sent there
        """
        return await self._ask(lambda admin: _missing(admin, topics, made_on_sending))

    async def reach(self, topics: Iterable[str]) -> dict[Place, tuple[int, int]]:
        """The first and the next offset of each partition of these topics; a topic that is missing has none."""
        return await self._ask(lambda admin: _reach(admin, set(topics)))

    async def committed(self) -> dict[Place, int]:
        """The committed offset of each partition."""
        return await self._ask(lambda admin: _committed(admin, self._passive()))

    async def aclose(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await asyncio.to_thread(consumer.close)

    def _passive(self) -> Any:
        if self._consumer is None:
            self._consumer = Consumer(quietly({**self._options.client(), "group.id": self._options.group}))
        return self._consumer

    async def _ask(self, question: Callable[[Any], T]) -> T:
        def ask() -> T:
            return question(self._admin())

        await self._meet()
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return await asyncio.to_thread(ask)
            except KafkaException as error:
                if inner(error).code() not in STARTING or time.monotonic() > end:
                    raise TransportUnavailable(NAME, self._why(error)) from error
            await asyncio.sleep(_AGAIN)

    async def _meet(self) -> None:
        """Until a broker has answered once: say what was tried and what to do, and do not wait for long."""
        if self.answered:
            return
        servers = self._options.addresses()
        if reason := await unreachable(servers):
            raise TransportUnavailable(NAME, reason)
        try:
            await asyncio.to_thread(lambda: self._listed(self._admin(), _FIRST))
        except KafkaException as error:
            text, is_refused = self._why(error), self._is_refused
            more = "" if is_refused or inner(error).code() not in AWAY else await misunderstood(servers[0])
            raise TransportUnavailable(NAME, f"{more} ({text})" if more else text) from error
        self.answered = True

    def _admin(self) -> Any:
        if self._client is None:
            self._client = AdminClient(quietly(self._options.client(), self._heard))
        return self._client

    def _heard(self, error: KafkaError) -> None:
        if error.code() in UNWELCOME:
            self._refusal = error

    def _why(self, error: KafkaException) -> str:
        """A question that nobody answers was perhaps not even heard: the driver then knows more than its error says."""
        self._client.poll(0)
        refusal, self._refusal = self._refusal, None
        self._is_refused = refusal is not None and refusal.code() in REFUSED
        return why(refusal or error, self._options.servers)

    def _listed(self, admin: Any, patience: float) -> None:
        end = time.monotonic() + patience
        while True:
            try:
                admin.list_topics(timeout=_TICK)
                return
            except KafkaException:
                admin.poll(0)
                if self._refusal is not None or time.monotonic() > end:
                    raise


def _make(admin: Any, topics: Sequence[str], partitions: int) -> None:
    if not topics:
        return
    wanted = [NewTopic(topic, num_partitions=partitions) for topic in topics]
    for future in admin.create_topics(wanted).values():
        try:
            future.result()
        except KafkaException as error:
            if inner(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _missing(admin: Any, topics: Sequence[str], made_on_sending: Sequence[str]) -> list[str]:
    known = admin.list_topics(timeout=_PATIENCE)
    missing = [topic for topic in topics if topic not in known.topics]
    if late := [topic for topic in made_on_sending if topic not in known.topics]:
        missing += [] if _makes_topics(admin, next(iter(known.brokers))) else late
    return missing


def _makes_topics(admin: Any, broker: int) -> bool:
    """Whether that broker makes a topic that something is sent to."""
    [answer] = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, str(broker))]).values()
    entry = answer.result(_PATIENCE).get("auto.create.topics.enable")
    return entry is not None and entry.value == "true"


def _reach(admin: Any, topics: set[str]) -> dict[Place, tuple[int, int]]:
    from confluent_kafka import admin as driver

    kinds: Any = driver.OffsetSpec
    known = admin.list_topics(timeout=_PATIENCE).topics
    places = [(topic, number) for topic in topics if topic in known for number in known[topic].partitions]
    if not places:
        return {}

    def ask(spec: Any) -> dict[Place, int]:
        answers = admin.list_offsets({TopicPartition(*place): spec for place in places}, request_timeout=_PATIENCE)
        return {(place.topic, place.partition): future.result().offset for place, future in answers.items()}

    first, following = ask(kinds.earliest()), ask(kinds.latest())
    return {place: (first[place], following[place]) for place in places}


def _committed(admin: Any, consumer: Any) -> dict[Place, int]:
    """Asked of a consumer that reads nothing: librdkafka's own question for it (2.16) ends the process with a
    segmentation fault when the coordinator of the group is not ready."""
    known = admin.list_topics(timeout=_PATIENCE).topics
    places = [
        TopicPartition(topic, number)
        for topic, found in known.items()
        if not topic.startswith("__")
        for number in found.partitions
    ]
    found = consumer.committed(places, timeout=_PATIENCE) if places else []
    return {(place.topic, place.partition): place.offset for place in found if place.offset >= 0}
