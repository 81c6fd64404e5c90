"""The e-mail system: fair, rate-limited, retried sending over Redis, and the helpers of its contract.

Importing it imports no driver: Redis, aiosmtplib and aiobotocore come with what uses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.systems.base import exports

if TYPE_CHECKING:
    from redrive.systems.email.constants import (
        EMAIL_JOB_CONFIG,
        EMAIL_JOB_FAIRNESS_CONFIG,
        EMAIL_JOB_RETRY_CONFIG,
        PERMANENT_ERRORS,
        RETRYABLE_ERRORS,
    )
    from redrive.systems.email.entry import DLQEntry, validate_dlq_entry
    from redrive.systems.email.gateway import EmailGateway
    from redrive.systems.email.job import EmailJob, read_job
    from redrive.systems.email.rules import (
        calculate_backoff_delay,
        calculate_round_robin_priority,
        is_retryable_error,
        judge,
    )
    from redrive.systems.email.senders import Mail, Sender, SendError, open_sender
    from redrive.systems.email.shape import EmailShape

__all__ = [
    "EMAIL_JOB_CONFIG",
    "EMAIL_JOB_FAIRNESS_CONFIG",
    "EMAIL_JOB_RETRY_CONFIG",
    "PERMANENT_ERRORS",
    "RETRYABLE_ERRORS",
    "DLQEntry",
    "EmailGateway",
    "EmailJob",
    "EmailShape",
    "Mail",
    "SendError",
    "Sender",
    "calculate_backoff_delay",
    "calculate_round_robin_priority",
    "is_retryable_error",
    "judge",
    "open_sender",
    "read_job",
    "validate_dlq_entry",
]

__getattr__ = exports(
    __name__,
    {
        "constants": (
            "EMAIL_JOB_CONFIG",
            "EMAIL_JOB_FAIRNESS_CONFIG",
            "EMAIL_JOB_RETRY_CONFIG",
            "PERMANENT_ERRORS",
            "RETRYABLE_ERRORS",
        ),
        "entry": (
            "DLQEntry",
            "validate_dlq_entry",
        ),
        "gateway": ("EmailGateway",),
        "job": (
            "EmailJob",
            "read_job",
        ),
        "rules": (
            "calculate_backoff_delay",
            "calculate_round_robin_priority",
            "is_retryable_error",
            "judge",
        ),
        "senders": (
            "Mail",
            "Sender",
            "SendError",
            "open_sender",
        ),
        "shape": ("EmailShape",),
    },
)
