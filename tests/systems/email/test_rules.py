"""The helpers of the contract, with the document's values."""

from __future__ import annotations

import random
import smtplib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import UsageError
from redrive.flow.classify import Classifier
from redrive.systems.email import (
    EMAIL_JOB_CONFIG,
    EMAIL_JOB_FAIRNESS_CONFIG,
    EMAIL_JOB_RETRY_CONFIG,
    PERMANENT_ERRORS,
    RETRYABLE_ERRORS,
    calculate_backoff_delay,
    calculate_round_robin_priority,
    is_retryable_error,
    judge,
)

RANGES = {1: (750, 1250), 2: (1500, 2500), 3: (3000, 5000), 4: (6000, 10_000), 5: (12_000, 20_000), 7: (45_000, 75_000)}


class Fixed(random.Random):
    """Chance that always says the same."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_the_constants_are_the_documents() -> None:
    assert EMAIL_JOB_RETRY_CONFIG == {
        "MAX_ATTEMPTS": 5,
        "BASE_DELAY_MS": 1000,
        "MAX_DELAY_MS": 60000,
        "JITTER_FACTOR": 0.25,
        "DLQ_TTL_MS": 604800000,
        "DLQ_NAME": "email:send:dlq",
        "DLQ_MAX_SIZE": 10000,
    }
    assert EMAIL_JOB_FAIRNESS_CONFIG == {
        "ENABLE_ROUND_ROBIN": True,
        "MAX_JOBS_PER_TENANT_BATCH": 3,
        "ROUND_ROBIN_BASE_PRIORITY": 5,
        "PRIORITY_INCREMENT_PER_ROUND": 1,
        "MAX_ROUND_ROBIN_PRIORITY": 1,
    }
    assert EMAIL_JOB_CONFIG["DEFAULT_TTL"] == 24 * 3600 * 1000
    with pytest.raises(TypeError):
        EMAIL_JOB_RETRY_CONFIG["MAX_ATTEMPTS"] = 6  # type: ignore[index]


@pytest.mark.parametrize(("attempt", "bounds"), RANGES.items())
def test_a_delay_doubles_and_is_spread_by_a_quarter(attempt: int, bounds: tuple[int, int]) -> None:
    assert calculate_backoff_delay(attempt, Fixed(0.0)) == bounds[0]
    assert calculate_backoff_delay(attempt, Fixed(1.0)) == bounds[1]


def test_the_sixth_delay_is_by_the_formula_and_not_by_the_rounded_table() -> None:
    assert calculate_backoff_delay(6, Fixed(0.5)) == 32_000


@given(st.integers(1, 10**6))
def test_a_delay_is_a_whole_number_within_its_bounds(attempt: int) -> None:
    delay = calculate_backoff_delay(attempt)
    base = min(60_000, 1000 * 2 ** min(attempt - 1, 30))
    assert isinstance(delay, int)
    assert 0.75 * base <= delay <= 1.25 * base


@pytest.mark.parametrize("attempt", [0, -1, 1.5, "1", None, True])
def test_an_attempt_that_is_none_is_refused(attempt: Any) -> None:
    with pytest.raises(UsageError, match="attempt="):
        calculate_backoff_delay(attempt)


@pytest.mark.parametrize("code", RETRYABLE_ERRORS)
def test_a_code_of_the_first_list_is_retried(code: str) -> None:
    assert is_retryable_error(code)


@pytest.mark.parametrize("code", PERMANENT_ERRORS)
def test_a_code_of_the_second_list_is_not(code: str) -> None:
    assert not is_retryable_error(code)


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        ("454", True),
        ("499", True),
        ("551", False),
        ("535", False),
        ("599", False),
        (550, False),
        (421, True),
        ("550 5.1.1 no such user", False),
        ("SMTP 550", False),
        ("ThrottlingException", True),
        ("MailFromDomainNotVerifiedException", False),
        ("AccountSuspended", True),
        ("AccessDenied", True),
        ("ECONNRESET", True),
        ("5000", True),
        ("", True),
        (None, True),
    ],
)
def test_unknown_smtp_codes_go_by_their_first_digit_and_the_rest_is_retried(code: Any, retryable: bool) -> None:
    assert is_retryable_error(code) is retryable


@pytest.mark.parametrize("code", [True, 4.21, ["421"], b"421"])
def test_what_is_no_code_is_refused(code: Any) -> None:
    with pytest.raises(UsageError, match="code="):
        is_retryable_error(code)


@pytest.mark.parametrize(("rounds", "priority"), [(0, 5), (1, 4), (2, 3), (3, 2), (4, 1), (5, 1), (1000, 1)])
def test_a_company_that_waits_becomes_more_urgent(rounds: int, priority: int) -> None:
    assert calculate_round_robin_priority(rounds) == priority


@pytest.mark.parametrize("rounds", [-1, 0.5, "3", None, False])
def test_rounds_that_are_none_are_refused(rounds: Any) -> None:
    with pytest.raises(UsageError, match="rounds_without_processing="):
        calculate_round_robin_priority(rounds)


class AwsLike(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code, "Message": "no"}}


@pytest.mark.parametrize(
    ("error", "retryable", "code"),
    [
        (smtplib.SMTPResponseException(421, b"later"), True, "421"),
        (smtplib.SMTPResponseException(550, b"no"), False, "550"),
        (smtplib.SMTPRecipientsRefused({"a@b.c": (550, b"no"), "d@b.c": (450, b"later")}), True, "450"),
        (AwsLike("AccountSuspendedException"), True, "AccountSuspended"),
        (AwsLike("AccessDenied"), True, "AccessDenied"),
        (AwsLike("MessageRejected"), False, "MessageRejected"),
        (ConnectionResetError("gone"), True, None),
        (TimeoutError("slow"), True, None),
    ],
)
def test_errors_of_other_senders_are_judged_by_the_contract(
    error: Exception, retryable: bool, code: str | None
) -> None:
    verdict = Classifier([judge])(error)
    assert (verdict.retryable, verdict.code) == (retryable, code)
