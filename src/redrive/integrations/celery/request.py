"""What becomes of each task, seen in the process that acknowledges its message.

Celery calls a Request when its task was accepted, has succeeded, failed or timed out, or was lost with the process that
ran it. Whatever it decides, in the end it acknowledges the message, rejects it, or puts it back into its queue: there a
letter is written, before the broker forgets the message, and only if it does.

    on_failure, on_timeout ──▶ acknowledge, reject(requeue=False)   a letter, then the ack
                          ├──▶ reject(requeue=True)                 none: it is in its queue
                          └──▶ neither: acknowledged before it ran  a letter
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from billiard.exceptions import Terminated
from celery.exceptions import Ignore, Retry, TimeLimitExceeded
from celery.worker.request import Request

from redrive.integrations.celery.attempts import with_attempt
from redrive.model import LETTER_HEADER

if TYPE_CHECKING:
    from redrive.integrations.celery.app import Watch

log = logging.getLogger("redrive")
_PAUSE = 1.0  # seconds before a message goes back to its queue because its letter cannot be written


class RedriveRequest(Request):  # type: ignore[misc]
    """A request whose task becomes a letter when it dies."""

    watch: Watch
    _dying: Any = None  # an ExceptionInfo or an error: it becomes a letter if its message is forgotten now
    _is_buried = False

    def __init__(self, message: Any, *args: Any, **options: Any) -> None:
        super().__init__(message, *args, **options)
        if LETTER_HEADER in (message.headers or ()):
            # Celery makes a subclass for each task whose on_success calls no other: only of the object is it ours
            self.on_success = self._on_replayed

    def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> Any:
        error = error_of(exc_info)
        if isinstance(error, Retry | Ignore | Terminated) or self._already_revoked or self._already_cancelled:
            if isinstance(error, Ignore) and not isinstance(error, Retry):
                self.watch.succeeded(self)
            return super().on_failure(exc_info, *args, **options)
        self._dying = exc_info
        try:
            return super().on_failure(exc_info, *args, **options)
        finally:
            self._bury_if_forgotten()

    def on_timeout(self, soft: bool, timeout: Any) -> Any:
        if soft:  # raised in the task, which fails of it or not
            return super().on_timeout(soft, timeout)
        self._dying = TimeLimitExceeded(timeout)
        try:
            return super().on_timeout(soft, timeout)
        finally:
            self._bury_if_forgotten()

    def acknowledge(self) -> Any:
        if self._dying is not None and not self.acknowledged and not self._bury():
            return self._give_back()
        return super().acknowledge()

    def reject(self, requeue: bool = False) -> Any:
        if requeue:
            self._dying = None
        elif not self.acknowledged:
            self._dying = self._dying or sys.exc_info()[1]
            if not self._bury():
                return self._give_back()
        return super().reject(requeue)

    def _on_replayed(self, outcome: Any, **options: Any) -> Any:
        if not outcome[0]:
            self.watch.succeeded(self)
        del self.on_success  # that of its class is below
        return self.on_success(outcome, **options)

    def _retry_worker_lost(self, exc: Any, exc_info: Any) -> Any:
        """Celery 5.7 and later, where a task asks for it: the loss of its worker is an attempt, and a retry follows."""
        dying, self._dying = self._dying, None
        self._context.headers = with_attempt(self._context.headers, self.watch.failure(self, exc_info))
        is_retried = super()._retry_worker_lost(exc, exc_info)
        if not is_retried:
            self._dying = dying
        return is_retried

    def _success_was_stored(self) -> Any:
        """Celery 5.7 and later: the process was lost when its task had succeeded."""
        found = super()._success_was_stored()
        if found:
            self._dying = None
            self.watch.succeeded(self)
        return found

    def _bury_if_forgotten(self) -> None:
        if self.acknowledged:
            self._bury()
        self._dying = None

    def _bury(self) -> bool:
        """Whether its message may be forgotten: it has a letter, or needs none."""
        dying, self._dying = self._dying, None
        if dying is None or self._is_buried:
            return True
        self._is_buried = self.watch.died(self, dying)
        return self._is_buried

    def _give_back(self) -> None:
        log.error("%s[%s] goes back to its queue, because its letter could not be written", self.name, self.id)
        time.sleep(_PAUSE)
        super().reject(requeue=True)


def error_of(failed: Any) -> BaseException:
    """The error itself of what Celery hands over for one."""
    error = failed.exception if isinstance(failed, ExceptionInfo) else failed
    # billiard sends an error with its traceback around it
    found: BaseException = error.exc if isinstance(error, ExceptionWithTraceback) else error
    return found


def request_class(watch: Watch, base: type[Any]) -> type[Any]:
    """A request as that one, which tells that watch."""
    if issubclass(base, RedriveRequest):
        return base
    bases = (RedriveRequest,) if base is Request else (RedriveRequest, base)
    return type(base.__name__, bases, {"watch": watch})
