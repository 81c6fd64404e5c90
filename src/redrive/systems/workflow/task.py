"""A failed task is a view of a letter: what the document calls its fields, read from where Redrive keeps them.

The message's body is the task and its repositories as JSON; policy and metadata travel in headers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache, cached_property
from typing import Any

import msgspec

from redrive.errors import UsageError, nearest
from redrive.flow.validate import headers_of
from redrive.flow.validate import text_of as named
from redrive.model import Category, Headers, Letter, Message, State
from redrive.systems.workflow.errors import BadTask
from redrive.systems.workflow.policies import DeadLetterStatus, RetryPolicy

SOURCE = "workflow"
TRANSPORT = "workflow"
POLICY, METADATA = "workflow-policy", "workflow-metadata"
PRIORITIES = {"high": -1, "medium": 0, "low": 1}
_DEEPEST = 50
_LARGEST = 2**63


class FailedTask:
    """One failed workflow: what was to be done, why it failed, and when it is tried again."""

    def __init__(self, letter: Letter) -> None:
        self.letter = letter

    @cached_property
    def _work(self) -> Mapping[str, Any]:
        work: Mapping[str, Any] = msgspec.json.decode(self.letter.message.body)
        return work

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
    def error_category(self) -> Category:
        return self.letter.category

    @cached_property
    def metadata(self) -> dict[str, Any]:
        data = self.letter.message.header(METADATA)
        found: dict[str, Any] = {} if data is None else msgspec.json.decode(data)
        return found

    @property
    def depends_on(self) -> tuple[str, ...]:
        return self.letter.depends_on

    def to_dict(self) -> dict[str, Any]:
        """The document's fields, as JSON has them."""
        return {name: msgspec.to_builtins(getattr(self, name)) for name in FIELDS}

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


def body_of(task: Mapping[str, Any], repos: Iterable[str]) -> bytes:
    """The bytes of what is to be done again. A field that JSON would lose or change is an error that names it."""
    if not isinstance(task, Mapping):
        raise BadTask("task", f"it is a {type(task).__name__}, not a dict")
    places = None if isinstance(repos, str) else list(repos)
    if places is None or not all(isinstance(repo, str) for repo in places):
        raise BadTask("repos", f"{repos!r} is no list of texts")
    check_json("task", task)
    check_json("repos", places)
    return msgspec.json.encode({"task": task, "repos": places})


def headers(policy: str, metadata: Mapping[str, Any] | None, after: Iterable[str] | str) -> Headers:
    """What travels beside the body."""
    if not metadata and not after:
        return _plain_headers(str(policy))
    pairs: dict[str, str | bytes] = {POLICY: str(policy)}
    if metadata:
        check_json("metadata", metadata)
        pairs[METADATA] = msgspec.json.encode(metadata)
    return headers_of(pairs, after)


@cache
def _plain_headers(policy: str) -> Headers:
    """Shared by all tasks that have no others: a hundred thousand of them should be small."""
    return headers_of({POLICY: policy}, ())


def priority_of(metadata: Mapping[str, Any] | None) -> int:
    """What `metadata["priority"]` says: high before medium before low."""
    name = (metadata or {}).get("priority", "medium")
    if not isinstance(name, str) or name not in PRIORITIES:
        raise UsageError(f"metadata['priority']={name!r}{nearest(str(name), PRIORITIES)}")
    return PRIORITIES[name]


def check_json(field: str, value: Any, depth: int = 0) -> None:
    """Raise for what would not come back as it was given."""
    if depth > _DEEPEST:
        raise BadTask(field, f"it is nested deeper than {_DEEPEST} levels")
    match value:
        case None | bool():
            return
        case str():
            if not _is_text(value):
                raise BadTask(field, f"{value!r} is text that UTF-8 cannot write")
        case int():
            if not -_LARGEST <= value < _LARGEST:
                raise BadTask(field, f"{value} is a number of more than 64 bits")
        case float():
            if not math.isfinite(value):
                raise BadTask(field, f"{value} is no number that JSON has")
        case Mapping():
            for key, inner in value.items():
                if not isinstance(key, str) or not _is_text(key):
                    raise BadTask(field, f"the key {key!r} is no text")
                check_json(f"{field}.{key}", inner, depth + 1)
        case list() | tuple():
            for number, inner in enumerate(value):
                check_json(f"{field}[{number}]", inner, depth + 1)
        case _:
            raise BadTask(field, f"a {type(value).__name__} cannot be kept")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def message_of(
    task_id: str, task: Mapping[str, Any], repos: Iterable[str], policy: str, metadata: Mapping[str, Any] | None,
    after: Iterable[str] | str, now: datetime, attempt: int,
) -> Message:  # fmt: skip
    """The message that a task becomes."""
    return Message(
        id=named("task_id", task_id),
        source=SOURCE,
        body=body_of(task, repos),
        enqueued_at=now,
        headers=headers(policy, metadata, after),
        attempt=attempt,
        priority=priority_of(metadata),
        origin=str(task.get("adapter", "")),
    )
