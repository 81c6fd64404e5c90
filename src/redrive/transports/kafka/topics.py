"""What the brokers know: which topics there are, how far they reach, and how far a group has come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from redrive.drivers.reach import misunderstood, unreachable
from redrive.errors import TransportUnavailable
from redrive.flow.threads import Threads
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
_LONG_PATIENCE = 30.0  # of a question whose time limit can end the process (handover.py says why)
_SOON = 3.0  # so long a broker that cannot be connected to may be on its way back
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
        self._gone: KafkaError | None = None  # why there is no connection, as it heard since the question was asked
        self._threads = Threads("redrive-kafka")  # none of them keeps a process from ending
        self.answered = False  # whether a broker ever has

    async def check(self) -> None:
        """Raise unless a broker answers. A refusal is raised at once, not when the time is over."""
        await self.ask(lambda admin: None)

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has; raises if there is no such topic."""
        found = await self.ask(lambda admin: admin.list_topics(topic, timeout=_PATIENCE).topics[topic])
        if found.error is not None:
            raise TransportUnavailable(NAME, why(found.error, self._options.servers, topic))
        return len(found.partitions)

    async def make(self, topics: Sequence[str], partitions: int) -> None:
        """Create the topics that are missing."""
        await self.ask(lambda admin: _make(admin, topics, partitions))

    async def missing(self, topics: Sequence[str], made_on_sending: Sequence[str] = ()) -> list[str]:
        """Those that are not there.

        made_on_sending   more topics, which a broker may be set to make when something is sent there
        """
        return await self.ask(lambda admin: _missing(admin, topics, made_on_sending))

    async def reach(self, topics: Iterable[str]) -> dict[Place, tuple[int, int]]:
        """The first and the next offset of each partition of these topics; a topic that is missing has none."""
        return await self.ask(lambda admin: _reach(admin, set(topics)))

    async def committed(self) -> dict[Place, int]:
        """The committed offset of each partition."""
        return await self.ask(lambda admin: _committed(admin, self._passive()))

    async def readers(self) -> dict[Place, str]:
        """The member of the group that reads each partition, by its name and host."""
        return await self.ask(lambda admin: _readers(admin, self._options.group))

    async def aclose(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await self._threads.run(consumer.close)
        self._threads.close()

    def _passive(self) -> Any:
        if self._consumer is None:
            self._consumer = Consumer(quietly({**self._options.client(), "group.id": self._options.group}))
        return self._consumer

    async def ask(self, question: Callable[[Any], T]) -> T:
        """Ask in a thread; a broker that has just begun is asked again."""

        def ask() -> T:
            admin = self._admin()
            self._listed(admin, _PATIENCE)
            return question(admin)

        await self._meet()
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                answer: T = await self._threads.run(ask)
                return answer
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
            await self._threads.run(lambda: self._listed(self._admin(), _FIRST))
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
        elif error.code() in AWAY and (self._gone is None or error.code() != KafkaError._ALL_BROKERS_DOWN):
            self._gone = error  # that all are down says less than how one of them was tried

    def _why(self, error: KafkaException) -> str:
        """A question that nobody answers was perhaps not even heard: the driver then knows more than its error says."""
        self._client.poll(0)
        refusal, self._refusal = self._refusal, None
        self._is_refused = refusal is not None and refusal.code() in REFUSED
        return why(refusal or self._gone or error, self._options.servers)

    def _listed(self, admin: Any, patience: float) -> None:
        """See that a broker answers, before it is asked anything: why there is no connection is known long before a
        question is given up."""
        self._gone = None
        soon, end = time.monotonic() + min(_SOON, patience), time.monotonic() + patience
        while True:
            try:
                admin.list_topics(timeout=_TICK)
                return
            except KafkaException:
                admin.poll(0)
                now = time.monotonic()
                if self._refusal is not None or now > end or (self._gone is not None and now > soon):
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


def _readers(admin: Any, group: str) -> dict[Place, str]:
    """Nobody, where we may not ask."""
    [answer] = admin.describe_consumer_groups([group], request_timeout=_LONG_PATIENCE).values()
    try:
        members = answer.result().members
    except KafkaException as error:
        if inner(error).code() in STARTING:
            raise
        return {}
    return {
        (place.topic, place.partition): f"{member.group_instance_id or member.client_id} at {member.host.lstrip('/')}"
        for member in members
        if member.assignment is not None
        for place in member.assignment.topic_partitions
    }
