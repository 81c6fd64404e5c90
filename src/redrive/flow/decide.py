"""Pure: message + failure + policy + now -> Outcome. The whole retry rule is on this page."""

from __future__ import annotations

from datetime import datetime
from random import Random

from redrive.model import Bury, Done, Failure, Message, Outcome, Reason, Retry, Stage
from redrive.policy import Policy

_DONE = Done()


def admit(message: Message, most_attempts: int, body_limit: int, now: datetime) -> Reason | None:
    """None: attempt it. Otherwise why it is buried without an attempt."""
    if message.attempt > most_attempts:
        return Reason.CRASHED
    if message.expires_at is not None and message.expires_at <= now:
        return Reason.EXPIRED
    if len(message.body) > body_limit:
        return Reason.TOO_LARGE
    return None


def decide(message: Message, failure: Failure | None, policy: Policy, now: datetime, rng: Random) -> Outcome:
    """What becomes of a message after one attempt."""
    if failure is None:
        return _DONE
    if failure.stage is Stage.DECODE:
        return Bury(Reason.UNDECODABLE)
    rule = policy.rule(failure.category)
    if not (failure.retryable if rule.retry is None else rule.retry):
        return Bury(Reason.PERMANENT)
    if message.attempt >= rule.attempts:
        return Bury(Reason.ATTEMPTS)
    after = rule.backoff.delay(message.attempt, rng)
    if after is None:
        return Bury(Reason.ATTEMPTS)
    if message.expires_at is not None and now + after >= message.expires_at:
        return Bury(Reason.EXPIRED)
    return Retry(after)
