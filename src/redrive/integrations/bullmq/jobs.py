"""A job of BullMQ as its hash in Redis, and the letter of one that has failed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.collect import foreign
from redrive.flow.lineage import BY_HAND, LETTER, REPLAY, RETRIES, named
from redrive.model import Failure, Headers, Letter, Message, Reason, letter_id
from redrive.untrusted import UNREADABLE, read_json

NAME, OPTIONS, REMOVED, PARENT = "bullmq-name", "bullmq-opts", "bullmq-removed", "bullmq-parent"
_MOST_ATTEMPTS = 50
_STALLED = "job stalled more than allowable limit"
_GONE = "its data was deleted with it (removeOnFail), before anybody could read it"
_LINEAGE = (LETTER, REPLAY, RETRIES, BY_HAND)


class Job(Struct, frozen=True):
    """A job that has failed.

    fields     its hash; empty, if it was deleted when it failed
    children   how many jobs of its flow it has: `12 done, 1 failed, 3 waiting`
    sent       what it was sent back with, if it was
    """

    queue: str
    id: str
    fields: Mapping[str, bytes]
    children: str = ""
    sent: bytes | None = None
    reason: str = ""  # why it failed, as its event says
    at: datetime | None = None  # when, as its event says

    @property
    def message(self) -> Message:
        fields = self.fields
        headers = [(f"bullmq-{name}", value) for name, value in self._said() if value]
        return Message(
            id=self.id,
            source=self.queue,
            body=fields.get("data", b""),
            enqueued_at=moment_of(fields.get("timestamp")) or self.died_at,
            headers=(*headers, *lineage_of(self.queue, self.id, self.sent)),
            priority=_number(fields.get("priority")),
            origin=f"{self.queue}/{self.id}",
        )

    @property
    def died_at(self) -> datetime:
        return moment_of(self.fields.get("finishedOn")) or self.at or datetime.fromtimestamp(0, UTC)

    @property
    def attempts(self) -> int:
        return max(_number(self.fields.get("atm") or self.fields.get("attemptsMade")), 1)

    def _said(self) -> list[tuple[str, bytes]]:
        fields = self.fields
        names = {"name": "name", "opts": "opts", "parent": "parentKey", "repeat": "rjk", "progress": "progress"}
        said = [(shown, fields.get(name, b"")) for shown, name in names.items()]
        return [
            *said,
            ("children", self.children.encode()),
            ("stalled", fields.get("stc", b"")),
            ("removed", b"" if fields else b"removeOnFail"),
        ]

    def failures(self) -> tuple[Failure, ...]:
        """One for each attempt since it was last sent back whose stack BullMQ has kept. Of those before the last it
        keeps no time."""
        before = _number((self.sent or b"0").partition(b" ")[0])
        stacks = (stacks_in(self.fields.get("stacktrace")) or [""])[-max(self.attempts - before, 1) :]
        last = len(stacks) - 1
        began = moment_of(self.fields.get("timestamp")) or self.died_at
        return tuple(
            self._failure(stack, max(self.attempts - last + number, 1), self.died_at if number == last else began)
            for number, stack in enumerate(stacks)
        )

    def _failure(self, stack: str, attempt: int, at: datetime) -> Failure:
        reason = _decoded(self.fields.get("failedReason")) or self.reason
        kind, text = _kind_and_text(stack)
        is_last = at == self.died_at
        text = (reason or text) if is_last else text
        kind = "bullmq.Stalled" if text.startswith(_STALLED) else kind
        text = text if self.fields else f"{text} ({_GONE})"
        worker = _decoded(self.fields.get("pb"))
        return foreign.failure_of(kind, text, at, attempt=attempt, stack=stack, worker=worker)

    def letter(self, *, transport: str, now: datetime, watched: bool) -> Letter:
        """Its letter.

        watched   somebody tells us what becomes of it when it is sent back
        """
        failures = self.failures()
        letter = foreign.letter_of(self.message, failures[-1], transport=transport, now=now)
        reason = Reason.CRASHED if failures[-1].type == "bullmq.Stalled" else Reason.ATTEMPTS
        return replace(letter, failures=failures, foreign=not watched, created_at=self.died_at, reason=reason)


def lineage_of(queue: str, id: str, sent: bytes | None) -> Headers:
    """What a job was sent back with, as headers; of what is no note of ours, nothing."""
    if sent is None:
        return ()
    try:
        found = msgspec.json.decode(sent.partition(b" ")[2], type=dict[str, str])
    except UNREADABLE:
        return ()
    headers = tuple((name, value.encode("ascii", "replace")) for name, value in found.items() if name in _LINEAGE)
    return headers if named(dict(headers).get(LETTER, b"")) == letter_id(queue, id) else ()


def note_of(message: Message) -> bytes:
    """What is remembered of a job while it is sent back."""
    return msgspec.json.encode(
        {name: value.decode("ascii", "replace") for name, value in message.headers if name in _LINEAGE}
    )


def stacks_in(value: bytes | None) -> list[str]:
    """The stacks of the attempts that BullMQ has kept, the last one last."""
    try:
        found: Any = read_json(value or b"[]")
    except UNREADABLE:
        return []
    return [str(stack) for stack in found if stack][-_MOST_ATTEMPTS:] if isinstance(found, list) else []


def options_of(fields: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        found: Any = read_json(fields.get("opts", b"{}"))
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def children_said(processed: int, waiting: int, failed: int) -> str:
    """How the children of a flow's parent stand; empty if it has none."""
    some = [(processed, "done"), (failed, "failed"), (waiting, "waiting")]
    return ", ".join(f"{number} {word}" for number, word in some if number)


def moment_of(value: bytes | None) -> datetime | None:
    millis = _number(value)
    return datetime.fromtimestamp(millis / 1000, UTC) if 0 < millis < 1 << 47 else None


def _kind_and_text(stack: str) -> tuple[str, str]:
    """`TypeError` and `no card` from the first line of `TypeError: no card`."""
    first = stack.partition("\n")[0]
    kind, colon, text = first.partition(": ")
    return (kind, text) if colon and kind.isidentifier() else ("Error", first)


def _number(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) < 16 else 0


def _decoded(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")
