"""A failed task is a view of a letter: what the document calls its fields, read from where Redrive keeps them.

The message's body is the task and its repositories as JSON; policy, metadata, and the kinds of values that JSON has no
type for (values.py) travel in headers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache, cached_property
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.flow.validate import headers_of
from redrive.flow.validate import text_of as named
from redrive.model import Headers, Letter, Message, State, with_headers
from redrive.systems.workflow.errors import BadTask
from redrive.systems.workflow.policies import DeadLetterStatus, ErrorCategory, RetryPolicy
from redrive.systems.workflow.values import Kinds, read, written
from redrive.untrusted import read_json

SOURCE = "workflow"
TRANSPORT = "workflow"
POLICY, METADATA, KINDS = "workflow-policy", "workflow-metadata", "workflow-kinds"
PRIORITIES = {"high": -1, "medium": 0, "low": 1}
log = logging.getLogger("redrive")


class FailedTask:
    """One failed workflow: what was to be done, why it failed, and when it is tried again."""

    def __init__(self, letter: Letter) -> None:
        self.letter = letter

    @cached_property
    def _work(self) -> Mapping[str, Any]:
        return work_in(self.letter.message)

    @property
    def task_id(self) -> str:
        return self.letter.message.id

    @property
    def task(self) -> dict[str, Any]:
        task: dict[str, Any] = self._work["task"]
        return task

    @property
    def repos(self) -> list[str]:
        repos: list[str] = self._work["repos"]
        return repos

    @property
    def error(self) -> str:
        """Why it failed the first time."""
        return self.letter.failures[0].message

    @property
    def last_error(self) -> str:
        return self.letter.last.message

    @property
    def failed_at(self) -> datetime:
        return self.letter.failures[0].at

    @property
    def updated_at(self) -> datetime:
        return self.letter.updated_at

    @property
    def next_retry_at(self) -> datetime | None:
        return self.letter.next_retry_at

    @property
    def retry_count(self) -> int:
        """Automatic retries made so far."""
        return self.letter.retries

    @property
    def max_retries(self) -> int:
        return self.letter.max_retries

    @property
    def total_attempts(self) -> int:
        """The first execution and every retry, by whomever, that ended."""
        return len(self.letter.failures) + (self.letter.state is State.RESOLVED)

    @property
    def retry_policy(self) -> str:
        """A RetryPolicy, or the name of a backoff that was registered."""
        return policy_of(self.letter)

    @property
    def status(self) -> DeadLetterStatus:
        return DeadLetterStatus.of(self.letter.state)

    @property
    def error_category(self) -> ErrorCategory:
        return ErrorCategory(self.letter.category)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = read({"metadata": _metadata(self.letter.message)}, kinds_in(self.letter.message))
        return dict(found["metadata"])

    @property
    def depends_on(self) -> tuple[str, ...]:
        return self.letter.depends_on

    def to_dict(self) -> dict[str, Any]:
        """The document's fields, as JSON has them."""
        plain = {**read_json(self.letter.message.body), "metadata": _metadata(self.letter.message)}
        return {name: plain[name] if name in plain else msgspec.to_builtins(getattr(self, name)) for name in FIELDS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FailedTask) and self.letter == other.letter

    def __hash__(self) -> int:
        return hash(self.letter.id)

    def __repr__(self) -> str:
        return (
            f"FailedTask({self.task_id!r}, {self.status}, {self.error_category}, "
            f"retries={self.retry_count}/{self.max_retries}, error={self.last_error!r})"
        )


FIELDS = (
    "task_id",
    "task",
    "repos",
    "error",
    "failed_at",
    "retry_count",
    "max_retries",
    "retry_policy",
    "next_retry_at",
    "status",
    "metadata",
    "error_category",
    "last_error",
    "total_attempts",
    "updated_at",
)
"""In the document's order."""


def policy_of(letter: Letter) -> str:
    """The policy that its task was enqueued with."""
    name = (letter.message.header(POLICY) or b"").decode("utf-8", "replace") or RetryPolicy.EXPONENTIAL
    return RetryPolicy(name) if name in RetryPolicy.__members__.values() else name


def body_of(task: Mapping[str, Any], repos: Iterable[str | PurePath], kinds: Kinds) -> bytes:
    """The bytes of what is to be done again. A field that cannot be kept is an error that names it."""
    if not isinstance(task, Mapping):
        raise BadTask("task", f"it is a {type(task).__name__}, not a dict")
    for key in task:
        if not isinstance(key, str):
            raise BadTask("task", f"the key {key!r} is no text")
    places = None if isinstance(repos, str) else list(repos)
    if places is None or not all(isinstance(repo, str | PurePath) for repo in places):
        raise BadTask("repos", f"{repos!r} is no list of texts")
    plain = {"task": written("task", task, kinds, "/task"), "repos": written("repos", places, kinds, "/repos")}
    return msgspec.json.encode(plain)


def work_in(message: Message) -> dict[str, Any]:
    """The task and its repositories, each value of the type that it was given with."""
    work: dict[str, Any] = read(read_json(message.body), kinds_in(message))
    return work


def decoded(body: bytes, message: Message) -> dict[str, Any]:
    """What a callback is called with."""
    return work_in(message)


def kinds_in(message: Message) -> Kinds:
    """The kinds of its values, as far as JSON has no type for them."""
    data = message.header(KINDS)
    kinds: Kinds = {} if data is None else read_json(data)
    return kinds


def _metadata(message: Message) -> dict[str, Any]:
    """As JSON has it."""
    data = message.header(METADATA)
    found: dict[str, Any] = {} if data is None else read_json(data)
    return found


def narrowed(message: Message, repos: Iterable[str | PurePath]) -> Message:
    """The message of a task that is left to do in these repositories only."""
    kinds = {place: kind for place, kind in kinds_in(message).items() if place.startswith("/metadata")}
    body = body_of(work_in(message)["task"], repos, kinds)
    header = msgspec.json.encode(kinds) if kinds else None
    return replace(message, body=body, headers=with_headers(message.headers, workflow_kinds=header))


def headers(policy: str, metadata: Mapping[str, Any] | None, after: Iterable[str] | str, kinds: Kinds) -> Headers:
    """What travels beside the body."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise BadTask("metadata", f"it is a {type(metadata).__name__}, not a dict")
    if not metadata and not after and not kinds:
        return _plain_headers(str(policy))
    pairs: dict[str, str | bytes] = {POLICY: str(policy)}
    if metadata:
        texts = {str(key): value for key, value in metadata.items()}
        pairs[METADATA] = msgspec.json.encode(written("metadata", texts, kinds, "/metadata"))
    if kinds:
        pairs[KINDS] = msgspec.json.encode(kinds)
    return headers_of(pairs, after)


@cache
def _plain_headers(policy: str) -> Headers:
    """Shared by all tasks that have no others: a hundred thousand of them should be small."""
    return headers_of({POLICY: policy}, ())


def priority_of(task_id: str, metadata: Mapping[str, Any] | None) -> int:
    """What `metadata["priority"]` says: high before medium before low. Whatever else it says is kept, and is medium."""
    given = (metadata or {}).get("priority", "medium")
    name = str(given).strip().lower()
    if name not in PRIORITIES:
        log.warning(
            "task %r has the priority %r: it is kept, and retried as medium (of high, medium, low)", task_id, given
        )
    return PRIORITIES.get(name, PRIORITIES["medium"])


def message_of(
    task_id: str, task: Mapping[str, Any], repos: Iterable[str | PurePath], policy: str,
    metadata: Mapping[str, Any] | None, after: Iterable[str] | str, now: datetime, attempt: int,
) -> Message:  # fmt: skip
    """The message that a task becomes."""
    kinds: Kinds = {}
    body = body_of(task, repos, kinds)
    return Message(
        id=named("task_id", task_id),
        source=SOURCE,
        body=body,
        enqueued_at=now,
        headers=headers(policy, metadata, after, kinds),
        attempt=attempt,
        priority=priority_of(task_id, metadata),
        origin=str(task.get("adapter", "")),
    )
