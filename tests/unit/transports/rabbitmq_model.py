"""A simulated broker with workers that die: the real state machine and the real inbox, and nothing else of RabbitMQ."""

from __future__ import annotations

from collections import deque
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from redrive.transports.rabbitmq.inbox import Inbox
from redrive.transports.rabbitmq.redelivery import Event, Redelivery, after

_MOST_STEPS = 100_000


class Plan(Struct, frozen=True):
    """What is drawn for one run."""

    innocents: int = 10
    place: int = 0  # where in the queue the deadly messages begin
    attempts: int = 3
    workers: int = 1
    prefetch: int = 20
    batch: int = 8
    seed: int = 7


class Message(Struct, frozen=True):
    """A message as it lies in a queue."""

    name: str
    state: Redelivery = Redelivery.FRESH
    attempt: int = 1
    redelivered: bool = False  # as the broker says
    hit: int = 0  # deaths of a worker that had it, or of the broker

    @property
    def is_deadly(self) -> bool:
        return self.name.startswith("deadly")

    def after(self, event: Event) -> Message:
        following = after(self.state, event)
        attempt = self.attempt + following.attempts
        return replace(self, state=following.state, attempt=attempt, redelivered=False)

    def returned(self) -> Message:
        """As the broker delivers it again."""
        return replace(self, redelivered=True, hit=self.hit + 1)


class Died(Exception):
    """The handler of a deadly message has killed its worker."""


class Broker:
    """One queue, and the workers on it."""

    def __init__(self, plan: Plan, *, deadly: int, kills: int = 0) -> None:
        innocent = [Message(f"innocent-{number}") for number in range(plan.innocents)]
        place = min(plan.place, plan.innocents)
        killers = [Message(f"deadly-{number}") for number in range(deadly)]
        self.plan = plan
        self.queue: deque[Message] = deque([*innocent[:place], *killers, *innocent[place:]])
        self.done: list[Message] = []
        self.buried: list[Message] = []
        self.deaths = 0
        self.rng = Random(plan.seed)
        self._workers = [Worker(self) for _ in range(plan.workers)]
        self._kills = kills

    def run(self) -> None:
        """Until everything is handled or buried."""
        rng = self.rng
        for _ in range(_MOST_STEPS):
            if not self.queue and all(worker.is_idle for worker in self._workers):
                return
            if self._kills and rng.random() < 0.1:
                self._kills -= 1
                self._kill_something()
            worker = rng.choice(self._workers)
            try:
                worker.step()
            except Died:
                self.kill(worker)
        raise AssertionError("it does not end")

    def _kill_something(self) -> None:
        if self.rng.random() < 0.5:
            self.kill_broker()
        else:
            self.kill(self.rng.choice(self._workers))

    def kill(self, worker: Worker) -> None:
        """Whatever it had goes back to the head of the queue."""
        self.deaths += 1
        self.queue.extendleft(reversed([message.returned() for message in worker.let_go()]))
        self._workers[self._workers.index(worker)] = Worker(self)

    def kill_broker(self) -> None:
        """All that is in the queue is called delivered before, begun or not."""
        has = [message for worker in self._workers for message in worker.let_go()]
        self.queue = deque(message.returned() for message in [*has, *self.queue])
        self._workers = [Worker(self) for _ in self._workers]


class Worker:
    """A consumer as flow/receive.py is one, on a subscription as RabbitMQ's is one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._plan = broker.plan
        self._inbox: Inbox[Message] = Inbox()
        self._in_hand: list[Message] = []
        self._alone: Message | None = None  # in its last attempt: handled with nothing else in hand

    @property
    def is_idle(self) -> bool:
        return not self._in_hand and self._alone is None and not len(self._inbox)

    def let_go(self) -> list[Message]:
        """All that it had."""
        alone = [] if self._alone is None else [self._alone]
        return [*self._in_hand, *alone, *self._inbox.take_uncounted(), *self._inbox.take_ready()]

    def step(self) -> None:
        """Take more, or handle one of those in hand, as chance has it."""
        is_full = len(self._in_hand) >= 2 * self._plan.batch
        if self._alone is None and not is_full and self._broker.rng.random() < 0.5:
            self._receive()
        elif self._in_hand:
            message = self._broker.rng.choice(self._in_hand)
            self._handle(message)
            self._in_hand.remove(message)
        elif self._alone is not None:
            self._handle(self._alone)
            self._alone = None

    # -- the subscription ---------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        inbox, queue = self._inbox, self._broker.queue
        queue.extend(message.after(Event.REDELIVERED) for message in inbox.take_uncounted())
        if inbox.pace.is_one_by_one:
            self._ask_for_one()
        else:
            self._prefetch()
        for message in inbox.hand_out(self._plan.batch):
            self._begin(message)
        if inbox.must_slow_down:
            queue.extend(message.after(Event.NOT_STARTED) for message in inbox.slow_down())

    def _prefetch(self) -> None:
        while self._broker.queue and len(self._inbox) + len(self._in_hand) < self._plan.prefetch:
            self._take()

    def _ask_for_one(self) -> None:
        if not self._inbox.has_ready and not self._inbox.pace.is_over and self._broker.queue:
            self._take()
        if not len(self._inbox):
            self._inbox.speed_up()

    def _take(self) -> None:
        message = self._broker.queue.popleft()
        self._inbox.add(message, redelivered=message.redelivered)

    # -- the consumer -------------------------------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        if message.attempt > self._plan.attempts:
            self._broker.buried.append(message)
        elif message.attempt == self._plan.attempts and message.state is Redelivery.SUSPECT:
            self._alone = message
        else:
            self._in_hand.append(message)

    def _handle(self, message: Message) -> None:
        if message.is_deadly:
            raise Died
        self._broker.done.append(message)
