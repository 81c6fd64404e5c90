"""The values of the e-mail contract, under its names. All of them are defaults: `Email` in settings.py changes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

EMAIL_JOB_CONFIG: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "QUEUE_NAME": "email:send",
        "DEFAULT_TTL": 86_400_000,
        "CONCURRENCY": 5,
        "LIMITER_MAX": 100,
        "LIMITER_DURATION_MS": 60_000,
    }
)
EMAIL_JOB_RETRY_CONFIG: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "MAX_ATTEMPTS": 5,
        "BASE_DELAY_MS": 1_000,
        "MAX_DELAY_MS": 60_000,
        "JITTER_FACTOR": 0.25,
        "DLQ_TTL_MS": 604_800_000,
        "DLQ_NAME": "email:send:dlq",
        "DLQ_MAX_SIZE": 10_000,
    }
)
EMAIL_JOB_FAIRNESS_CONFIG: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "ENABLE_ROUND_ROBIN": True,
        "MAX_JOBS_PER_TENANT_BATCH": 3,
        "ROUND_ROBIN_BASE_PRIORITY": 5,
        "PRIORITY_INCREMENT_PER_ROUND": 1,
        "MAX_ROUND_ROBIN_PRIORITY": 1,
    }
)
RETRYABLE_ERRORS: Final = ("421", "450", "451", "452", "Throttling", "ServiceUnavailable")
PERMANENT_ERRORS: Final = ("500", "550", "554", "MessageRejected", "MailFromDomainNotVerified")
