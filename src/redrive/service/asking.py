"""What every part of the service stands on: who is asked, what is masked, and the audit trail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from redrive.access.actors import EVERYTHING, Actor
from redrive.access.trail import Phase, said
from redrive.access.trail_store import Trail
from redrive.answers import Answers, Unanswered, ask_each
from redrive.app import Redrive
from redrive.errors import UsageError
from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.service.acting import current
from redrive.telemetry.events import Acted
from redrive.transports.base import Transport

T = TypeVar("T")


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
        key = app.settings.access.trail_key
        self.trail = Trail(app.store.documents, app.clock, key=None if key is None else key.encode())

    async def note(
        self,
        actor: Actor,
        action: str,
        detail: str,
        *,
        outcome: Phase = Phase.DONE,
        reason: str = "",
        about: Iterable[str] = (),
    ) -> None:
        """Write to the audit trail what somebody did. Of an act that has begun this is the outcome."""
        act = current.get()
        told, of = tuple(about), None
        if act is not None and act.action == action and not act.is_told:
            act.is_told = True
            told, of, reason = (*told, *(id for id in act.about if id not in told)), act.seq, reason or act.reason
        await self.write(actor, action, outcome, detail, reason=reason, about=told, of=of)
        self.app.events.emit(Acted(actor=str(actor), action=action, detail=detail, at=self.app.clock.now()))

    async def note_unmasked(self, actor: Actor, query: Query) -> None:
        """Write down that code of somebody's is about to be given letters as they are."""
        await self.note(actor, "export", f"unmasked, for a script or a handler: {msgspec.json.encode(query).decode()}")

    async def write(
        self,
        actor: Actor,
        action: str,
        outcome: Phase,
        detail: str,
        *,
        reason: str = "",
        about: Iterable[str] = (),
        of: int | None = None,
    ) -> int:
        """Append a line to the trail, with its texts masked; returns its sequence."""
        text = self.redactor.text
        line = said(
            replace(actor, name=text(actor.name)),
            action,
            outcome,
            at=self.app.clock.now().isoformat(),
            detail=text(detail),
            reason=text(reason),
            about=map(text, about),
            of=of,
        )
        return await self.trail.append(line)

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


def check_every(query: Query, every: bool, verb: str) -> None:
    """Refuse an empty query, which selects every letter, unless that was said."""
    if query.is_empty and not every:
        raise UsageError(
            f"an empty query selects every letter: say which to {verb} (by state, group, source or age), or that all "
            f"of them are meant (`all`)"
        )


def letters_said(count: int) -> str:
    """So many letters, in words."""
    return f"{count:,} letter{'' if count == 1 else 's'}"
