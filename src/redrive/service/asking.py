"""What every part of the service stands on: who is asked, what is masked, and the audit trail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeVar

from redrive.access.actors import EVERYTHING, Actor
from redrive.answers import Answers, Unanswered, ask_each
from redrive.app import Redrive
from redrive.errors import UsageError
from redrive.forensics.redact import Redactor
from redrive.telemetry.events import Acted
from redrive.transports.base import Transport

T = TypeVar("T")
AUDIT = "audit"


class Asking:
    """Asks backends side by side, and writes down who did what.

    `unanswered` is told of each backend that did not answer, whatever was asked; answers that have a place for it name
    it, too.
    """

    def __init__(self, app: Redrive, *, unanswered: Callable[[Unanswered], None] = lambda backend: None) -> None:
        self.app = app
        self.scope = EVERYTHING  # of whoever asks; `Service.seen_by` narrows it, and the store with it
        self._unanswered = unanswered
        self.redactor = Redactor.of(app.settings.redact)

    async def note(self, actor: Actor, action: str, detail: str) -> None:
        """Write to the audit trail who did what."""
        at: datetime = self.app.clock.now()
        body = {"at": at.isoformat(), "actor": str(actor), "action": action, "detail": detail}
        await self.app.store.documents.put(AUDIT, self.app.clock.new_id(), body)
        self.app.events.emit(Acted(actor=str(actor), action=action, detail=detail, at=at))

    async def _ask_transports(self, question: Callable[[Transport], Awaitable[T]]) -> Answers[T]:
        """What each transport answers, by its name."""

        def asked(name: str) -> Callable[[], Awaitable[T]]:
            return lambda: question(self.app.transport(name))

        answers = await self._ask({f"transports.{name}": asked(name) for name in self.app.transport_names})
        by_name = {about.partition(".")[2]: found for about, found in answers.found.items()}
        return Answers(by_name, answers.unanswered)

    async def _ask(self, questions: Mapping[str, Callable[[], Awaitable[T]]]) -> Answers[T]:
        answers = await ask_each(questions, masked=self.redactor.text)
        for backend in answers.unanswered:
            self._unanswered(backend)
        return answers


def bounded(limit: int) -> int:
    """The limit of a page. Raises UsageError for one that no page has."""
    if not 1 <= limit <= 1000:
        raise UsageError(f"limit={limit}: a page has 1 to 1000 letters")
    return limit
