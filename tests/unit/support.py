"""What these tests share: a small world on memory, a log of every call to a backend, and failures on demand."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

from redrive.flow.classify import Classifier
from redrive.flow.context import Context, Handler, Span
from redrive.flow.decode import batch_signature_of, signature_of
from redrive.flow.receive import Consumer
from redrive.model import Letter, Message, letter_id
from redrive.policy import Policy
from redrive.proof import Process
from redrive.stores.base import Store
from redrive.stores.memory import MemoryStore
from redrive.telemetry.events import Event, Events
from redrive.testing.clock import ManualClock
from redrive.transports.base import DeadLetterPlace, Delivery, Transport
from redrive.transports.memory import MemoryTransport

E = TypeVar("E", bound=Event)
SOON = 10.0  # real seconds after which a test gives up waiting


class Calls:
    """Every call to a backend, in order, and what is to go wrong with the next ones."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.arguments: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._failures: dict[str, list[BaseException]] = {}
        self._always: dict[str, BaseException] = {}
        self._answers: dict[str, list[Any]] = {}
        self._die_at: int | None = None
        self._die_after = False

    def fail(self, name: str, *errors: BaseException) -> None:
        """The next calls of that name raise these, one each."""
        self._failures.setdefault(name, []).extend(errors)

    def answer(self, name: str, *answers: Any) -> None:
        """The next calls of that name are not carried out, and give these answers, one each."""
        self._answers.setdefault(name, []).extend(answers)

    def break_down(self, name: str, error: BaseException) -> None:
        """Every call of that name raises, until it is mended."""
        self._always[name] = error

    def mend(self, name: str) -> None:
        del self._always[name]

    def die_at(self, number: int, *, after: bool) -> None:
        """The process dies at that call from now (0 is the next), before or after it was carried out."""
        self._die_at, self._die_after = len(self.names) + number, after

    def live(self) -> None:
        """Nobody dies from now on."""
        self._die_at = None

    def count(self, name: str) -> int:
        return self.names.count(name)

    async def run(self, name: str, call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        number = len(self.names)
        self.names.append(name)
        self.arguments.append((name, args, kwargs))
        if self._failures.get(name):
            raise self._failures[name].pop(0)
        if self._answers.get(name):
            return self._answers[name].pop(0)
        if name in self._always:
            raise self._always[name]
        if number == self._die_at and not self._die_after:
            raise Killed
        answer = await call(*args, **kwargs)
        if number == self._die_at and self._die_after:
            raise Killed
        return answer


class Killed(BaseException):
    """Stands for the end of the process: nothing of ours may catch it and go on."""


class Watched:
    """A backend whose calls are written down, and fail when a test wants it."""

    def __init__(self, target: object, name: str, calls: Calls) -> None:
        self._target = target
        self._name = name
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        full = f"{self._name}.{name}"
        if name in ("letters", "ledger", "documents"):
            return Watched(value, name, self._calls)
        if not inspect.iscoroutinefunction(value):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._calls.run(full, value, *args, **kwargs)

        return call


class World:
    """A clock, a store and a transport on memory, and everything that was seen of them."""

    def __init__(self, *, native_delay: bool = True, lease: timedelta = timedelta(seconds=60)) -> None:
        self.clock = ManualClock()
        self.calls = Calls()
        self.events = Events()
        self.facts: list[Event] = []
        self.events.subscribe(self.facts.append)
        self.letters = MemoryStore()
        self.queue = MemoryTransport(clock=self.clock, lease=lease, native_delay=native_delay)
        self.store = cast(Store, Watched(self.letters, "store", self.calls))
        self.transport = cast(Transport, Watched(self.queue, "transport", self.calls))
        self.lease = lease
        Process.read[self.store] = math.inf  # its keys are there: what is counted here is what comes after
        self.place: DeadLetterPlace | None = None

    def context(
        self,
        function: Callable[..., Any],
        policy: Policy | None = None,
        *,
        source: str = "orders",
        concurrency: int = 1,
        batch: int = 10,
        timeout: timedelta = timedelta(seconds=SOON),
        body_limit: int = 1000,
        classifier: Classifier | None = None,
        span: Span | None = None,
        size: int | None = None,
        within: timedelta = timedelta(seconds=1),
    ) -> Context:
        """The way of one source's messages to that handler.

        size   it is a batch handler that takes so many
        """
        decode, wants_message = (signature_of if size is None else batch_signature_of)(function)
        handler = Handler(
            source=source,
            call=function,
            decode=decode,
            wants_message=wants_message,
            policy=policy or Policy(attempts=3),
            timeout=timeout,
            concurrency=concurrency,
            name="shop:store",
            batch=size,
            within=within,
        )
        return Context(
            handler=handler,
            transport=self.transport,
            store=self.store,
            classifier=classifier or Classifier(),
            events=self.events,
            clock=self.clock,
            worker="worker-1",
            version="1.2.3",
            body_limit=body_limit,
            batch=batch,
            lease=self.lease,
            span=span,
            dead_letter_place=self.place,
        )

    def seen(self, kind: type[E]) -> list[E]:
        """The facts of that kind, in order."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    async def deliver(self, *messages: Message) -> list[Delivery]:
        """Send them, and receive them back."""
        await self.queue.send(messages)
        return list(await self.queue.receive(messages[0].source, len(messages)))

    async def letter_of(self, message: Message) -> Letter:
        """Its letter, which is there."""
        letter = await self.letters.letters.get(letter_id(message.source, message.id))
        assert letter is not None
        return letter


async def until(condition: Callable[[], object]) -> None:
    """Let the others go on until it holds."""
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - what it waits for is a fact, of which nobody sends a signal
            await asyncio.sleep(0)


@asynccontextmanager
async def running(consumer: Consumer, *, grace: timedelta = timedelta(seconds=SOON)) -> AsyncIterator[None]:
    """That consumer at work; stopped, and at its end, when this is left."""
    task = asyncio.create_task(consumer.run(grace))
    try:
        yield
    finally:
        consumer.stop()
        await asyncio.wait_for(task, SOON)


async def nothing(body: Any) -> None:
    """A handler that is content with everything."""
