"""Pure: the rules of the e-mail contract. Milliseconds are whole numbers here, because the contract speaks them."""

from __future__ import annotations

import math
import random
import re

from redrive.errors import UsageError
from redrive.flow.classify import Verdict
from redrive.flow.codes import Family, category_of, find_code, parse_code
from redrive.flow.fairness import priority_of
from redrive.model import Category
from redrive.systems.email.constants import (
    EMAIL_JOB_FAIRNESS_CONFIG,
    EMAIL_JOB_RETRY_CONFIG,
    PERMANENT_ERRORS,
    RETRYABLE_ERRORS,
)

_SMTP = re.compile(r"(?:smtp[:/ ]*)?([45][0-9]{2})(?:[ -].*)?", re.IGNORECASE | re.DOTALL)
_THROTTLED = frozenset(("421", "452", "Throttling", "TooManyRequests", "MaxSendingRateExceeded"))
_MOST_DOUBLINGS = 62  # past that every cap is long reached
_chance = random.Random()


def calculate_backoff_delay(attempt: int, rng: random.Random | None = None) -> int:
    """Milliseconds to wait after that attempt failed, the first being 1: 1 s doubled each time, at most 60 s, ±25 %."""
    _whole("attempt", attempt, least=1)
    config = EMAIL_JOB_RETRY_CONFIG
    doubled = config["BASE_DELAY_MS"] * 2 ** min(attempt - 1, _MOST_DOUBLINGS)
    capped: int = min(doubled, config["MAX_DELAY_MS"])
    jitter = (2 * (rng or _chance).random() - 1) * config["JITTER_FACTOR"] * capped
    return max(0, math.floor(float(capped + jitter) + 0.5))


def is_retryable_error(code: str | int | None) -> bool:
    """Whether trying again can help: as the contract lists it; unknown SMTP codes by their first digit; else yes."""
    if isinstance(code, bool) or not isinstance(code, str | int | None):
        raise UsageError(f"code={code!r}: an error code is a text such as '421' or 'Throttling', a number, or None")
    name = "" if code is None else canonical_code(str(code))
    if name in RETRYABLE_ERRORS or name in PERMANENT_ERRORS:
        return name in RETRYABLE_ERRORS
    return not (_SMTP.fullmatch(name) and name.startswith("5"))


def calculate_round_robin_priority(
    rounds_without_processing: int,
    *,
    base: int = EMAIL_JOB_FAIRNESS_CONFIG["ROUND_ROBIN_BASE_PRIORITY"],
    increment: int = EMAIL_JOB_FAIRNESS_CONFIG["PRIORITY_INCREMENT_PER_ROUND"],
    maximum: int = EMAIL_JOB_FAIRNESS_CONFIG["MAX_ROUND_ROBIN_PRIORITY"],
) -> int:
    """How urgent a company is after so many rounds without a turn: from 5 down to 1, and 1 is the most urgent."""
    _whole("rounds_without_processing", rounds_without_processing, least=0)
    return priority_of(rounds_without_processing, base, increment, maximum)


def canonical_code(code: str) -> str:
    """One spelling of a code: `550` for `SMTP 550` and `550 5.1.1 no such user`, `Throttling` for
    `ThrottlingException`."""
    code = code.strip()
    smtp = _SMTP.fullmatch(code)
    return smtp[1] if smtp else code.removesuffix("Exception")


def verdict_of(code: str) -> Verdict:
    """What the contract says of that code."""
    retryable = is_retryable_error(code)
    if code in _THROTTLED:  # the category that makes an adaptive rate give way
        return Verdict(Category.RESOURCE, retryable, code)
    known = parse_code(code, Family.SMTP if code[:1].isdigit() else Family.AWS)
    category = category_of(known) if known is not None else None
    if retryable:
        fits = category in (Category.TRANSIENT, Category.NETWORK, Category.RESOURCE)
        return Verdict(category if fits and category else Category.TRANSIENT, True, code)
    fits = category in (Category.PERMANENT, Category.VALIDATION, Category.PERMISSION)
    return Verdict(category if fits and category else Category.PERMANENT, False, code)


def judge(error: BaseException) -> Verdict | None:
    """A rule for the Classifier: an error with a code is judged by the contract and not by the core's tables."""
    found = find_code(error)
    return None if found is None else verdict_of(canonical_code(found.value))


def _whole(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name}={value!r}: it is a whole number, {least} or more")
