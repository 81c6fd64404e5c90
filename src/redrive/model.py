"""The nouns: Message, Failure, Outcome, Letter, as frozen values.

They are msgspec structs and not dataclasses because they are made on the hot path and written to disk as they
are (docs/decisions/0002-structs.md). A value is never changed: `msgspec.structs.replace` makes the next one.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

MessageId: TypeAlias = str
LetterId: TypeAlias = str
Owner: TypeAlias = str
LETTER_HEADER = "redrive-letter"
"""On a message that was sent back: the id of its letter (flow/lineage.py)."""
DEAD_HEADER = "redrive-dead"
"""On a record in a dead-letter topic or queue: what its letter knows. On the message of a letter: nothing proved it."""
Headers: TypeAlias = tuple[tuple[str, bytes], ...]
"""In order, repeats allowed, values as raw bytes: what a broker carried is what we carry."""


class State(StrEnum):
    """Where a letter stands. Every move between them is compare-and-set (docs/life-of-a-message.md)."""

    PENDING = "pending"  # waits for its next automatic retry, or for a person
    RETRYING = "retrying"  # an automatic retry has it
    REPLAYING = "replaying"  # a replay has it
    SENT = "sent"  # it went back to a consumer that is not ours: nobody tells us what becomes of it
    RESOLVED = "resolved"  # its message succeeded after all
    EXHAUSTED = "exhausted"  # no automatic retry is left, or a replay of it died
    ARCHIVED = "archived"  # somebody decided that it is done with


OPEN = (State.PENDING, State.RETRYING, State.REPLAYING, State.EXHAUSTED)
"""The states in which a letter still asks for something."""
EDITABLE = (State.PENDING, State.EXHAUSTED, State.SENT, State.ARCHIVED)
"""The states in which a letter's message may be edited: nothing of it is on its way, and it may be sent once more."""
UNRESOLVED = (*OPEN, State.SENT)
"""The states from which a success resolves a letter: all but those of which it is known that they are done with."""


class Category(StrEnum):
    """What kind of trouble a failure is; the same six in every system."""

    TRANSIENT = "transient"
    NETWORK = "network"
    RESOURCE = "resource"
    PERMISSION = "permission"
    VALIDATION = "validation"
    PERMANENT = "permanent"


class Reason(StrEnum):
    """Why a message was buried."""

    PERMANENT = "permanent"  # the failure will not go away by itself
    ATTEMPTS = "attempts"  # every allowed attempt failed
    UNDECODABLE = "undecodable"  # the body is not what the handler's annotation says
    EXPIRED = "expired"  # its time to live passed before it was done
    TOO_LARGE = "too-large"  # over the body limit
    CRASHED = "crashed"  # delivered more often than it may be attempted: it takes its worker down
    PARKED = "parked"  # waits here for a retry that its transport cannot delay itself
    BEHIND = "behind"  # it was not attempted: another message of its key is dead, and it follows that one


WAITING = (Reason.PARKED, Reason.BEHIND)
"""The reasons of letters that are not dead: their message waits in the store, and goes on by itself."""


class Stage(StrEnum):
    """How far an attempt came before it failed."""

    DELIVERY = "delivery"  # it was not attempted: expired, too large, or its worker died with it
    DECODE = "decode"
    HANDLE = "handle"


class Holds(StrEnum):
    """What waits behind a message while it waits for its retry, where its transport keeps order."""

    KEY = "key"  # the messages of its key; all others go on
    PARTITION = "partition"  # everything behind it: strict order
    NOTHING = "nothing"  # it steps aside, and what is behind it goes first


class OnDeath(StrEnum):
    """What becomes of the messages behind one that dies, of its key."""

    GO_ON = "go-on"  # they are handled as if nothing had happened
    HOLD_KEY = "hold-key"  # they are set aside as letters, and follow when it is resolved or archived


class BatchFailure(StrEnum):
    """How a batch that failed as a whole is tried again, so that only what fails alone has failed."""

    HALVES = "halves"  # in two halves, and what fails of these in halves again
    EACH = "each"  # one by one


class Message(Struct, frozen=True, gc=False):
    """Raw bytes and what travels with them. Never needs decoding to be carried."""

    id: MessageId
    source: str
    body: bytes
    enqueued_at: datetime
    headers: Headers = ()
    key: bytes | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    attempt: int = 1
    priority: int = 0  # lower is more urgent
    expires_at: datetime | None = None
    origin: str = ""  # where the broker had it, for people: `orders[3]@1007`
    not_before: datetime | None = None  # for `send`: when it may be received. Who receives it sees none

    def header(self, name: str) -> bytes | None:
        """The last value of that name, as a broker would resolve a repeat."""
        for key, value in reversed(self.headers):  # a plain loop: it is asked of every message, and a generator costs
            if key == name:
                return value
        return None

    @property
    def was_sent_back(self) -> bool:
        """Whether a retry or a replay of its letter sent it."""
        return bool(self.headers) and self.header(LETTER_HEADER) is not None


def with_headers(headers: Headers, **changes: bytes | None) -> Headers:
    """The headers with some set (`trace_id=b"…"` sets `trace-id`) or, given None, removed."""
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    kept = tuple(pair for pair in headers if pair[0] not in named)
    return kept + tuple((name, value) for name, value in named.items() if value is not None)


class Failure(Struct, frozen=True, gc=False):
    """What went wrong in one attempt, as plain data."""

    type: str
    message: str
    category: Category
    retryable: bool
    at: datetime
    attempt: int
    stage: Stage = Stage.HANDLE
    code: str | None = None
    stack: str = ""
    frames: tuple[str, ...] = ()  # innermost last, `module:function`, the user's own code only
    worker: str = ""
    version: str = ""  # of the user's code, where it says so
    edition: int | None = None  # the version of its letter that was sent back; None: it came from its sender

    @property
    def id(self) -> str:
        """The same attempt by the same worker at the same time is the same failure."""
        return f"{self.attempt}/{self.worker}/{self.at.isoformat()}"


class Done(Struct, frozen=True, tag="done"):
    """The handler succeeded."""


class Retry(Struct, frozen=True, tag="retry"):
    """Try again after that long."""

    after: timedelta


class Bury(Struct, frozen=True, tag="bury"):
    """Keep it as a letter, and let the queue go on."""

    reason: Reason


class Release(Struct, frozen=True, tag="release"):
    """Give it back untouched, as if it had not been received, not before that pause."""

    pause: timedelta = timedelta()


Outcome: TypeAlias = Done | Retry | Bury | Release


class Edit(Struct, frozen=True, gc=False):
    """Who gave a letter's message another version, when and why."""

    by: str
    at: datetime
    why: str = ""
    repair: str | None = None  # the repair that did it
    restores: int | None = None  # it has the bytes of that version again


class Letter(Struct, frozen=True, gc=False):
    """A dead message with every failure, its state, its group and its lineage."""

    id: LetterId
    message: Message
    failures: tuple[Failure, ...]
    state: State
    reason: Reason
    group: str
    created_at: datetime  # when it died, the last time; its first failure says when it all began
    updated_at: datetime
    transport: str = "default"  # the name of the transport that its message goes back to
    next_retry_at: datetime | None = None
    retries: int = 0  # automatic retries made so far
    max_retries: int = 0
    resends: int = 0  # times it was sent back, by retry or replay
    replay: str | None = None  # the replay that sent it back last
    depends_on: tuple[MessageId, ...] = ()  # not retried before the letters of these are resolved or archived
    expires_at: datetime | None = None
    owner: Owner | None = None
    lease_until: datetime | None = None
    foreign: bool = False  # it died at a consumer that is not ours, which tells us nothing of what is sent back to it
    version: int = (
        0  # of its message, which is what is sent; 0: as it came. The older ones are kept (stores' `Versions`)
    )
    edit: Edit | None = None  # how that version came about
    archived_from: State | None = None  # where `unarchive` takes it

    @property
    def last(self) -> Failure:
        return self.failures[-1]

    @property
    def category(self) -> Category:
        return self.last.category


@lru_cache(maxsize=1024)  # asked several times for each message that comes back
def letter_id(source: str, message_id: MessageId) -> LetterId:
    """The id of the letter of a message: one message of one source is one letter, however often it dies."""
    digest = blake2b(f"{source}\0{message_id}".encode("utf-8", "surrogatepass"), digest_size=10).digest()
    return b32encode(digest).decode().lower()


def merge_failures(known: tuple[Failure, ...], new: Iterable[Failure]) -> tuple[Failure, ...]:
    """The known failures, then those not seen before. Recording the same failure twice changes nothing."""
    seen = {failure.id for failure in known}
    return known + tuple(failure for failure in new if failure.id not in seen)


class Revision(Struct, frozen=True, gc=False):
    """What a letter's message is to be, if its version is still the expected one."""

    letter: LetterId
    expect: int
    body: bytes
    headers: Headers
    edit: Edit


class Version(Struct, frozen=True, gc=False):
    """A letter's message as it was in one version."""

    letter: LetterId
    number: int
    headers: Headers
    size: int  # of the body, in bytes
    edit: Edit | None = None  # None: as it came
    body: bytes = b""  # empty in a list


def version_of(letter: Letter) -> Version:
    """The version that a letter's message has now."""
    body = letter.message.body
    return Version(letter.id, letter.version, letter.message.headers, len(body), letter.edit, body)


def edited(letter: Letter, revision: Revision) -> Letter | None:
    """The letter with its next version; None if it is not as expected, or on its way."""
    if letter.version != revision.expect or letter.state not in EDITABLE:
        return None
    return replace(
        letter,
        message=replace(letter.message, body=revision.body, headers=revision.headers),
        version=letter.version + 1,
        edit=revision.edit,
        updated_at=revision.edit.at,
    )


ANOTHER = "another message came under its id"
"""Why a letter that was edited has a version that nobody made by hand."""


def _message_of(old: Letter, new: Letter) -> tuple[Message, int, Edit | None]:
    """The message of a letter that died again: as its sender made it, or as it was edited since, unless somebody has
    sent another one under its id. What we sent back is never another one, however it was edited meanwhile."""
    is_ours = old.version > 0 and new.last.edition is not None
    if is_ours or old.message.body == new.message.body:
        return old.message, old.version, old.edit
    return new.message, old.version + 1, Edit(by="", at=new.updated_at, why=ANOTHER)


def is_anothers(old: Letter, new: Letter) -> bool:
    """Whether a message of another tenant died under the id of a letter, and is not what we sent back: neither tenant
    may be shown, or lose, what is the other's. One that names no tenant is nobody else's."""
    return new.message.tenant not in (None, old.message.tenant) and new.last.edition is None


def set_apart(letter: Letter) -> Letter:
    """The letter under an id of its own (`ID#DIGEST`), always the same one for its tenant."""
    digest = blake2b((letter.message.tenant or "").encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    message = replace(letter.message, id=f"{letter.message.id}#{digest}")
    return replace(letter, id=letter_id(message.source, message.id), message=message)


def rejoined(old: Letter, new: Letter) -> Letter | None:
    """A known letter after it died again: what is new of the newcomer, and what stays. None if nothing is new.

    A letter of another tenant (`is_anothers`) must not come here: a store sets it apart.
    """
    failures = merge_failures(old.failures, new.failures)
    if len(failures) == len(old.failures):
        return None
    message, version, edit = _message_of(old, new)
    return replace(
        new,
        message=replace(message, attempt=new.message.attempt, tenant=old.message.tenant),
        version=version,
        edit=edit,
        archived_from=None,
        failures=failures,
        created_at=max(old.created_at, new.created_at),
        resends=old.resends,
        replay=new.replay if new.reason in WAITING else old.replay,
        depends_on=new.depends_on if new.reason is Reason.BEHIND else old.depends_on,
        owner=None,
        lease_until=None,
    )


def claimed(
    letter: Letter, to: State, owner: Owner, now: datetime, until: datetime, replay: str | None = None
) -> Letter:
    """A letter as its claim leaves it. Claiming again what one has already counts nothing twice."""
    first = letter.state is not to
    return replace(
        letter,
        state=to,
        owner=owner,
        lease_until=until,
        updated_at=now,
        resends=letter.resends + first,
        retries=letter.retries + (first and to is State.RETRYING),
        replay=replay or letter.replay,
    )


def moved(letter: Letter, to: State, now: datetime) -> Letter:
    """A letter as a move leaves it. A claim that is undone was not sent after all."""
    undone = letter.state in (State.RETRYING, State.REPLAYING) and to in (State.PENDING, State.EXHAUSTED)
    return replace(
        letter,
        state=to,
        updated_at=now,
        owner=None,
        lease_until=None,
        next_retry_at=letter.next_retry_at if undone else None,
        resends=letter.resends - undone,
        retries=letter.retries - (undone and letter.state is State.RETRYING),
        archived_from=_archived_from(letter) if to is State.ARCHIVED else None,
    )


def _archived_from(letter: Letter) -> State | None:
    """Where a letter that is archived now comes back to: what was on its way is for a person to look at."""
    if letter.state is State.ARCHIVED:
        return letter.archived_from
    return State.EXHAUSTED if letter.state in (State.RETRYING, State.REPLAYING) else letter.state
