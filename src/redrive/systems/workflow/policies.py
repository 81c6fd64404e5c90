"""When a failed task is retried: the document's four policies, and functions of your own by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from typing import TypeAlias

from msgspec import Struct

from redrive.config.durations import Duration
from redrive.errors import ConfigError, UsageError, nearest
from redrive.flow.backoff import Backoff, custom, exponential, immediate, linear, never
from redrive.model import Category, Letter, State
from redrive.policy import Again, Policy

BackoffFunction: TypeAlias = Callable[[int], Duration | None]
"""From the number of retries made so far to the delay before the next; None: wait for a person."""
log = logging.getLogger("redrive")
_MOST_KEPT = 1000


class Word(StrEnum):
    """A word of the document. It prints as its text, in lists and dicts too."""

    def __repr__(self) -> str:
        return repr(self.value)


class ErrorCategory(Word):
    """What kind of trouble an error is: equal to the core's Category of that name."""

    TRANSIENT = "transient"
    NETWORK = "network"
    RESOURCE = "resource"
    PERMISSION = "permission"
    VALIDATION = "validation"
    PERMANENT = "permanent"


class RetryPolicy(Word):
    """How long a task waits for its next retry."""

    NEVER = "never"  # for a person
    LINEAR = "linear"  # 5 · (n + 1) minutes
    EXPONENTIAL = "exponential"  # min(2ⁿ, 60) minutes
    IMMEDIATE = "immediate"  # until the next cycle


AnyPolicy: TypeAlias = RetryPolicy | str | BackoffFunction


class DeadLetterStatus(Word):
    """Where a task stands. A replay of it is a retry to this system."""

    PENDING = "pending"
    RETRYING = "retrying"
    EXHAUSTED = "exhausted"
    RESOLVED = "resolved"
    ARCHIVED = "archived"

    @property
    def states(self) -> tuple[State, ...]:
        """Those of a letter that mean this."""
        return (
            (State.RETRYING, State.REPLAYING, State.SENT) if self is DeadLetterStatus.RETRYING else (State(self.value),)
        )

    @classmethod
    def of(cls, state: State) -> DeadLetterStatus:
        return cls.RETRYING if state in (State.REPLAYING, State.SENT) else cls(state.value)


POLICY_OF: Mapping[Category, RetryPolicy] = {
    Category.TRANSIENT: RetryPolicy.EXPONENTIAL,
    Category.NETWORK: RetryPolicy.EXPONENTIAL,
    Category.RESOURCE: RetryPolicy.LINEAR,
    Category.PERMISSION: RetryPolicy.NEVER,
    Category.VALIDATION: RetryPolicy.NEVER,
    Category.PERMANENT: RetryPolicy.NEVER,
}
"""What is worth retrying, and how: the policy that the selective strategy gives."""

_BACKOFFS: Mapping[str, Backoff] = {
    RetryPolicy.NEVER.value: never(),
    RetryPolicy.LINEAR.value: linear("5m"),
    RetryPolicy.EXPONENTIAL.value: exponential("1m", cap="60m"),
    RetryPolicy.IMMEDIATE.value: immediate(),
}


class AsPlanned(Struct, frozen=True):
    """The backoff of a retry that a person asked for: the next automatic one stays when it was to be."""

    wait: timedelta | None

    def delay(self, attempt: int, rng: Random) -> timedelta | None:
        return self.wait


def as_planned(letter: Letter, attempt: int, now: datetime) -> Policy:
    """For a retry that uses none of the automatic ones up."""
    wait = None if letter.next_retry_at is None else letter.next_retry_at - now
    return _policy(attempt, Again(letter.max_retries, AsPlanned(wait)))


def _policy(attempt: int, again: Again) -> Policy:
    return Policy(attempt, again=again, categories=dict.fromkeys(Category, Policy(attempt)))


class Policies:
    """The backoffs of one queue by their names, because a name is what a task can keep."""

    def __init__(self, default: AnyPolicy = RetryPolicy.EXPONENTIAL) -> None:
        self._backoffs: dict[str, Backoff] = dict(_BACKOFFS)
        self._functions: dict[str, BackoffFunction] = {}
        self._policies: dict[tuple[str, int, int], Policy] = {}
        self.default = self.name_of(default)

    def register(self, name: str, function: BackoffFunction) -> None:
        """From now on that name means that function; it is called with the number of retries made so far."""
        if not isinstance(name, str) or not name.isprintable() or not name:
            raise ConfigError(f"{name!r} is no name for a backoff: use a word, such as 'fibonacci'")
        if not callable(function):
            raise ConfigError(f"backoff {name!r}: {function!r} cannot be called")
        if name in self._backoffs and self._functions.get(name) is not function:
            raise ConfigError(f"there is a policy {name!r} already: give this one another name")
        self._functions[name] = function
        self._policies.clear()
        self._backoffs[name] = custom(lambda attempt: function(attempt - 1))

    def name_of(self, policy: AnyPolicy) -> str:
        """The name that a task keeps. A function is registered under its own."""
        if isinstance(policy, str):
            if policy not in self._backoffs:
                raise UsageError(f"unknown retry policy {str(policy)!r}{nearest(policy, self._backoffs)}")
            return RetryPolicy(policy) if policy in _BACKOFFS else policy
        if not callable(policy):
            raise UsageError(f"retry_policy={policy!r}: give a RetryPolicy, its name, or a function of the retry count")
        name = getattr(policy, "__name__", "")
        if not name or name == "<lambda>":
            raise UsageError("a backoff without a name cannot be kept with its task: use register_backoff(name, …)")
        self.register(name, policy)
        return name

    def policy(self, name: str, max_retries: int, attempt: int = 2) -> Policy:
        """Every failure is written into the letter, and the letter waits for its retries: so many, whatever the
        category of the failure, because whoever enqueued the task said so."""
        key = name, max_retries, attempt
        if key not in self._policies or name not in self._backoffs:
            if len(self._policies) >= _MOST_KEPT:
                self._policies.clear()
            self._policies[key] = _policy(attempt, Again(max_retries, self.backoff(name)))
        return self._policies[key]

    def backoff(self, name: str) -> Backoff:
        """That of a task. One whose function is not registered here waits as the default says."""
        if name not in self._backoffs:
            log.warning("no backoff %r is registered in this process: %s is used in its place", name, self.default)
        return self._backoffs.get(name, self._backoffs[self.default])
