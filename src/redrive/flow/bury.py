"""Build the letter of a message that is to be buried. Pure: what it is given is all it knows."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from sys import intern

from msgspec.structs import replace

from redrive.flow.lineage import Lineage, bare, dependencies, lineage
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Failure, Letter, Reason, State, letter_id, merge_failures
from redrive.policy import Policy
from redrive.transports.base import Delivery

BEHIND_GROUP = "behind"
"""The group of all letters that are behind another of their key: that is one cause, however many they are."""
_PLAINEST = "unreadable"
"""The group of letters whose failures have no fingerprint."""


def letter_of(
    delivery: Delivery,
    failure: Failure,
    reason: Reason,
    policy: Policy,
    *,
    transport: str,
    now: datetime,
    rng: Random,
) -> Letter:
    """The letter as it will be recorded; if it is known already, the store lets it rejoin.

    It is exhausted if it was sent back and no automatic retry is left, otherwise pending.
    """
    origin = lineage(delivery.message)
    wait = _wait(failure, policy, origin, rng)
    message = bare(delivery.message)
    return Letter(
        id=letter_id(message.source, message.id),
        message=replace(message, attempt=1),
        failures=_failures(delivery, failure, origin),
        state=State.EXHAUSTED if wait is None and origin is not None and origin.was_retried else State.PENDING,
        reason=reason,
        group=intern(fingerprint(failure)),  # there are few groups, and may be very many letters
        created_at=now,
        updated_at=now,
        transport=transport,
        next_retry_at=None if wait is None else now + wait,
        retries=origin.retries if origin else 0,
        max_retries=policy.again_for(failure.category).attempts,
        depends_on=dependencies(message),
        expires_at=None if policy.ttl is None else now + policy.ttl,
    )


def plainest(delivery: Delivery, failure: Failure, *, transport: str, now: datetime) -> Letter:
    """The letter of a message that no better one can be made of: it waits for a person, and nothing of it is read."""
    message = delivery.message
    return Letter(
        id=letter_id(message.source, message.id),
        message=message,
        failures=(failure,),
        state=State.PENDING,
        reason=Reason.UNDECODABLE,
        group=_PLAINEST,
        created_at=now,
        updated_at=now,
        transport=transport,
    )


def parked(delivery: Delivery, failure: Failure, after: timedelta, *, transport: str, now: datetime) -> Letter:
    """A retry that its transport cannot delay: it waits in the store, and goes on counting its attempts.

    If its message had been sent back, it stays the retry or the replay that it was.
    """
    origin = lineage(delivery.message)
    message = bare(delivery.message)
    return Letter(
        id=letter_id(message.source, message.id),
        message=replace(message, attempt=message.attempt + 1),
        failures=_failures(delivery, failure, origin),
        state=State.PENDING,
        reason=Reason.PARKED,
        group=fingerprint(failure),
        created_at=now,
        updated_at=now,
        transport=transport,
        next_retry_at=now + after,
        retries=origin.retries if origin else 0,
        replay=origin.replay if origin else None,
        depends_on=dependencies(message),
    )


def behind(delivery: Delivery, failure: Failure, until: datetime, *, transport: str, now: datetime) -> Letter:
    """A message that was not attempted, because another of its key is dead: it follows that one by itself, and is never
    pruned before. If its message had been sent back, it stays the retry or the replay that it was.

    until   when it is tried at the latest, should nobody remember that its key is held
    """
    origin = lineage(delivery.message)
    message = bare(delivery.message)
    return Letter(
        id=letter_id(message.source, message.id),
        message=replace(message, attempt=1),
        failures=_failures(delivery, failure, origin),
        state=State.PENDING,
        reason=Reason.BEHIND,
        group=BEHIND_GROUP,
        created_at=now,
        updated_at=now,
        transport=transport,
        next_retry_at=until,
        retries=origin.retries if origin else 0,
        replay=origin.replay if origin else None,
        depends_on=dependencies(message),
    )


def _failures(delivery: Delivery, failure: Failure, origin: Lineage | None) -> tuple[Failure, ...]:
    """The failures of a message, each with the version of its letter that was sent back, if it was."""
    failures = merge_failures(delivery.failures, [failure])
    if origin is None:
        return failures
    return tuple(known if known.edition is not None else replace(known, edition=origin.version) for known in failures)


def _wait(failure: Failure, policy: Policy, origin: Lineage | None, rng: Random) -> timedelta | None:
    """How long until the letter's next automatic retry; None: a person has to look."""
    if origin is not None and origin.replay is not None:
        return None
    again, retries = policy.again_for(failure.category), origin.retries if origin else 0
    named = failure.category in policy.categories
    if retries >= again.attempts or not (failure.retryable or named):
        return None
    return again.backoff.delay(retries + 1, rng)
