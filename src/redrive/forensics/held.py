"""Held keys, as people and programs are shown them: one line for a dead letter and all that wait for it."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from redrive.flow.held import HeldKey
from redrive.forensics.redact import Redactor
from redrive.forensics.views import masked
from redrive.model import Letter, LetterId, MessageId, Reason, State


class HeldView(Struct, frozen=True, kw_only=True):
    """A key of which a message is dead, and what is behind it."""

    source: str
    transport: str
    key: str
    letter: LetterId  # the one that the others wait for
    message_id: MessageId
    state: State | None  # of that letter; None: it is not in the store
    reason: Reason | None
    error_type: str
    error_message: str
    behind: int  # how many wait for it
    since: datetime
    until: datetime  # when it is waited for no longer


def held_view(held: HeldKey, head: Letter | None, redactor: Redactor) -> HeldView:
    """The view of a held key, redacted."""
    return HeldView(
        source=held.source,
        transport=held.transport,
        key=masked(redactor.start, held.key),
        letter=held.head,
        message_id=masked(redactor.text, held.members[0]),
        state=None if head is None else head.state,
        reason=None if head is None else head.reason,
        error_type="" if head is None else head.last.type,
        error_message="" if head is None else masked(redactor.text, head.last.message),
        behind=held.behind,
        since=held.since,
        until=held.until,
    )
