"""The state machine of redelivered messages: which of them may kill their worker, and when that counts as an attempt.

RabbitMQ says that a message was delivered before. It does not say how often, nor whether a worker had begun it: it
says so of everything that a dead worker had prefetched, and after a crash of its own, of every message in a classic
queue. So every message carries a state (in the header `redrive`, as a number), and whatever happens to it makes a copy
with its next state (with `retry=reject` RabbitMQ moves what is retried itself, and its state stays):

    state      event          next state   attempts
    ---------  -------------  -----------  --------
    FRESH      REDELIVERED    RETURNED     +0
    FRESH      LEASE_EXPIRED  SUSPECT      +1
    FRESH      RETRIED        FRESH        +1
    FRESH      RELEASED       FRESH        +0
    FRESH      NOT_STARTED    FRESH        +0
    RETURNED   REDELIVERED    SUSPECT      +0
    RETURNED   LEASE_EXPIRED  SUSPECT      +1
    RETURNED   RETRIED        RETURNED     +1
    RETURNED   RELEASED       RETURNED     +0
    RETURNED   NOT_STARTED    RETURNED     +0
    SUSPECT    REDELIVERED    SUSPECT      +1
    SUSPECT    LEASE_EXPIRED  SUSPECT      +1
    SUSPECT    RETRIED        RETURNED     +1
    SUSPECT    RELEASED       RETURNED     +0
    SUSPECT    NOT_STARTED    SUSPECT      +0

A SUSPECT message is handed out with nothing prefetched. If it is redelivered after that, a worker had it, and the
attempt counts. So a message that kills its worker every time does so `attempts` + 2 times before it is buried, and
messages that were only prefetched beside it are not counted.

A subscription prefetches as long as it meets no SUSPECT message (`Pace`):

    pace         event                                next pace
    -----------  -----------------------------------  ------------------------------
    PREFETCHING  the next message is SUSPECT          one by one, 0 harmless in a row
    one by one   a SUSPECT message is handed out      one by one, 0 harmless in a row
    one by one   any other message is handed out      one by one, 1 more in a row
    one by one   20 in a row, or an empty queue       PREFETCHING
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto

from msgspec import Struct

HARMLESS_IN_A_ROW = 20  # handed out one by one, before messages are prefetched again


class Redelivery(IntEnum):
    """How often a message was delivered and settled by nobody, as far as it matters. The number goes over the wire."""

    FRESH = 0  # never, since it was published
    RETURNED = 1  # once: it may have been only prefetched. It may have a letter
    SUSPECT = 2  # twice or more, or its lease expired: it may kill its worker

    @property
    def perhaps_untried(self) -> bool:
        """Redelivered, and nothing says that a worker ever began it."""
        return self is Redelivery.RETURNED


class Event(Enum):
    """What happens to a message that a subscription has."""

    REDELIVERED = auto()  # the broker delivers it again, because nobody settled it
    LEASE_EXPIRED = auto()  # a worker of ours held it for too long
    RETRIED = auto()  # its handler failed, and its worker lives
    RELEASED = auto()  # its worker gives it back, and lives
    NOT_STARTED = auto()  # it was prefetched, and goes back unread


class Next(Struct, frozen=True):
    """What a copy of the message says."""

    state: Redelivery
    attempts: int  # more than before


_TABLE = {
    (Redelivery.FRESH, Event.REDELIVERED): Next(Redelivery.RETURNED, 0),
    (Redelivery.FRESH, Event.LEASE_EXPIRED): Next(Redelivery.SUSPECT, 1),
    (Redelivery.FRESH, Event.RETRIED): Next(Redelivery.FRESH, 1),
    (Redelivery.FRESH, Event.RELEASED): Next(Redelivery.FRESH, 0),
    (Redelivery.FRESH, Event.NOT_STARTED): Next(Redelivery.FRESH, 0),
    (Redelivery.RETURNED, Event.REDELIVERED): Next(Redelivery.SUSPECT, 0),
    (Redelivery.RETURNED, Event.LEASE_EXPIRED): Next(Redelivery.SUSPECT, 1),
    (Redelivery.RETURNED, Event.RETRIED): Next(Redelivery.RETURNED, 1),
    (Redelivery.RETURNED, Event.RELEASED): Next(Redelivery.RETURNED, 0),
    (Redelivery.RETURNED, Event.NOT_STARTED): Next(Redelivery.RETURNED, 0),
    (Redelivery.SUSPECT, Event.REDELIVERED): Next(Redelivery.SUSPECT, 1),
    (Redelivery.SUSPECT, Event.LEASE_EXPIRED): Next(Redelivery.SUSPECT, 1),
    (Redelivery.SUSPECT, Event.RETRIED): Next(Redelivery.RETURNED, 1),
    (Redelivery.SUSPECT, Event.RELEASED): Next(Redelivery.RETURNED, 0),
    (Redelivery.SUSPECT, Event.NOT_STARTED): Next(Redelivery.SUSPECT, 0),
}


_STATES = tuple(Redelivery)
_SUSPECT_FROM = int(Redelivery.SUSPECT)


def state_of(times: int) -> Redelivery:
    """The state of a message whose header says so; older versions counted on beyond two."""
    return _STATES[times] if times < _SUSPECT_FROM else Redelivery.SUSPECT


def after(state: Redelivery, event: Event) -> Next:
    """The row of the table."""
    return _TABLE[state, event]


class Pace(Struct, frozen=True):
    """How a subscription takes messages: prefetching, or one by one since it met a SUSPECT message."""

    harmless: int | None = None  # handed out one by one, in a row; None: it prefetches

    @property
    def is_one_by_one(self) -> bool:
        return self.harmless is not None

    @property
    def is_over(self) -> bool:
        """Enough harmless messages in a row: it may prefetch again."""
        return self.harmless is not None and self.harmless >= HARMLESS_IN_A_ROW

    def handed_out(self, state: Redelivery) -> Pace:
        """The pace after a message in that state was handed out."""
        if self.harmless is None:
            return self
        return ONE_BY_ONE if state is Redelivery.SUSPECT else Pace(self.harmless + 1)


PREFETCHING, ONE_BY_ONE = Pace(), Pace(0)
