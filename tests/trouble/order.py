"""Who was handed which message of a key, and what came of it, in one log; and every breach of the order in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from redrive import Message, Redrive
from redrive.transports.base import Delivery
from tests.trouble.kafka import transport_of

BEGUN, DONE, DEAD = "begun", "done", "dead"


class Entry(NamedTuple):
    """One line of a log."""

    owner: Hashable  # one worker, for as long as it had that partition
    key: Hashable
    number: int  # rises with the offset
    what: str  # begun; done; dead: failed for the last time


class Log(list[Entry]):
    """What handlers have told."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        super().__init__(entries)
        self.reached: dict[Hashable, int] = {}  # the offset that each partition was finished up to by who lost it

    @property
    def handled(self) -> set[int]:
        return {entry.number for entry in self if entry.what != BEGUN}

    @property
    def done(self) -> Counter[int]:
        return Counter(entry.number for entry in self if entry.what == DONE)

    @property
    def dead(self) -> Counter[int]:
        return Counter(entry.number for entry in self if entry.what == DEAD)

    @property
    def repeats(self) -> int:
        """What was done more than once."""
        return sum(times - 1 for times in self.done.values())


def breaches(log: Iterable[Entry]) -> list[str]:
    """Nothing is begun before all that is before it under its key was handled at least once; and while a partition has
    one owner, its keys only go forward, and what is done is not done again."""
    return list(_breaches(list(log)))


def _breaches(log: Sequence[Entry]) -> Iterator[str]:
    first_open = {key: iter(sorted(numbers)) for key, numbers in _numbers(log).items()}
    lowest = {key: next(numbers) for key, numbers in first_open.items()}
    handled: set[tuple[Hashable, int]] = set()
    reached: dict[tuple[Hashable, Hashable], int] = {}
    done: set[tuple[Hashable, Hashable, int]] = set()
    for owner, key, number, what in log:
        if what == BEGUN:
            if number > lowest[key]:
                yield f"{key!r}: {number} was begun before {lowest[key]} was handled"
            if number < reached.get((owner, key), number):
                yield f"{key!r}: {number} came after {reached[owner, key]} to the same owner"
            if (owner, key, number) in done:
                yield f"{key!r}: {number} was begun again by who had done it"
            reached[owner, key] = number
            continue
        if what == DONE:
            done.add((owner, key, number))
        handled.add((key, number))
        while (key, lowest[key]) in handled:
            lowest[key] = next(first_open[key], 1 << 62)


def _numbers(log: Sequence[Entry]) -> dict[Hashable, set[int]]:
    found: defaultdict[Hashable, set[int]] = defaultdict(set)
    for entry in log:
        found[entry.key].add(entry.number)
    return found


class Watch:
    """Looks at a Kafka transport: whose partition each message came from, and what its loss may repeat."""

    def __init__(self, app: Redrive, log: Log) -> None:
        self.may_repeat = 0  # handed out and not committed, when a partition was taken away
        self._log = log
        self._owners: dict[str, Any] = {}
        self._transport = transport_of(app)
        self._receive = self._transport.receive
        self._watched: set[int] = set()
        self._transport.receive = self._received  # type: ignore[method-assign]

    @property
    def partitions(self) -> list[Any]:
        """Those that messages came from."""
        return list({id(partition): partition for partition in self._owners.values()}.values())

    def note(self, message: Message, number: int, what: str) -> None:
        """In a handler."""
        self._log.append(Entry(self._owners[message.origin], message.key, number, what))

    async def _received(self, source: str, limit: int) -> Sequence[Delivery]:
        deliveries = await self._receive(source, limit)
        self._owners.update((one.message.origin, one.token[0].partition) for one in deliveries)
        self._look(self._transport._readers[source].shelf)
        return deliveries

    def _look(self, shelf: Any) -> None:
        if id(shelf) in self._watched:
            return
        self._watched.add(id(shelf))
        revoke, assign = shelf.revoke, shelf.assign

        def revoked(places: Iterable[Any]) -> Any:
            gone = revoke(places)
            for one in gone:
                self.may_repeat += sum(record.done or bool(record.turn) for record in one.open)
                self._log.reached[one.place] = one.base
            return gone

        def assigned(partition: Any) -> None:
            """What was finished, and no broker that it was, is what it begins with: a commit may be lost on its way."""
            self.may_repeat += max(self._log.reached.get(partition.place, 0) - partition.next, 0)
            assign(partition)

        shelf.revoke, shelf.assign = revoked, assigned
