"""Failures as they are written where others read: in headers of a broker, in its dead-letter queues and topics."""

from __future__ import annotations

from msgspec.structs import replace

from redrive.forensics.redact import Redactor
from redrive.forensics.views import masked
from redrive.model import Failure, Letter


class FailureMask:
    """Masks secrets in what is said of failures; the message itself is never changed."""

    def __init__(self, redactor: Redactor) -> None:
        self._text = redactor.text

    def failure(self, failure: Failure) -> Failure:
        """The same failure, with its texts masked."""
        message, stack = masked(self._text, failure.message), masked(self._text, failure.stack)
        if message == failure.message and stack == failure.stack:
            return failure
        return replace(failure, message=message, stack=stack)

    def letter(self, letter: Letter) -> Letter:
        """The same letter, with the texts of its failures masked."""
        failures = tuple(map(self.failure, letter.failures))
        return letter if failures == letter.failures else replace(letter, failures=failures)
