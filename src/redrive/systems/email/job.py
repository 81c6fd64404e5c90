"""EmailJob: what is queued. Its bytes stay as the producer wrote them; this is how they are read."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from redrive.errors import UsageError
from redrive.systems.email.addresses import Mailbox, read_address, read_addresses
from redrive.untrusted import UNREADABLE

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_MOST_HEADERS = 100
_OWN_HEADERS = frozenset(
    (
        *("from", "to", "cc", "bcc", "sender", "reply-to", "subject", "date", "message-id"),
        *("mime-version", "content-type", "content-transfer-encoding"),
    )
)
_HEADER = re.compile(r"[!-9;-~]+")

Text = Annotated[str, Meta(min_length=1)]


class EmailJob(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One e-mail to send. `outboxId` is its identity: the job's id, and the root of its Message-ID.

    Fields that it does not name are carried along and not read.
    """

    outbox_id: Text
    company_id: Text
    to: str | list[str]
    from_: Text = field(name="from")
    subject: str
    html: str | None = None
    text: str | None = None
    cc: str | list[str] = []
    bcc: str | list[str] = []
    reply_to: str | None = None
    headers: dict[str, str] = {}

    def __post_init__(self) -> None:
        for name in ("outbox_id", "company_id"):
            value = getattr(self, name)
            if not value.strip() or _CONTROLS.search(value):
                raise ValueError(f"{_spoken(name)} is blank or has control characters")
        if self.html is None and self.text is None:
            raise ValueError("it has neither html nor text: give one of them, or both")
        if _CONTROLS.search(self.subject.replace("\t", " ")):
            raise ValueError("subject has control characters: a line break in it would forge a header")
        _ = self.sender, self.reply_to_boxes
        if not self.recipients:
            raise ValueError("it has no recipient: give at least one address in to, cc or bcc")
        _check_headers(self.headers)

    @property
    def sender(self) -> Mailbox:
        """Whom it is from."""
        return read_address(self.from_)

    @property
    def to_boxes(self) -> tuple[Mailbox, ...]:
        """Every address of `to`; the next ones are those of `cc`, `bcc` and `replyTo`."""
        return _boxes(self.to)

    @property
    def cc_boxes(self) -> tuple[Mailbox, ...]:
        return _boxes(self.cc) if self.cc else ()

    @property
    def bcc_boxes(self) -> tuple[Mailbox, ...]:
        return _boxes(self.bcc) if self.bcc else ()

    @property
    def reply_to_boxes(self) -> tuple[Mailbox, ...]:
        return _boxes(self.reply_to) if self.reply_to else ()

    @property
    def recipients(self) -> tuple[str, ...]:
        """Every address that it goes to, bare, each once, in order."""
        first: dict[tuple[str, str], str] = {}
        for box in (*self.to_boxes, *self.cc_boxes, *self.bcc_boxes):
            first.setdefault(box.key, box.address)
        return tuple(first.values())


def _boxes(given: str | list[str]) -> tuple[Mailbox, ...]:
    """The addresses of a text or of a list of texts; each text may hold several."""
    return tuple(box for text in ([given] if isinstance(given, str) else given) for box in read_addresses(text))


def read_job(data: bytes, name: str = "the job") -> EmailJob:
    """The job of those bytes, or a UsageError that says what is wrong with it."""
    try:
        return msgspec.json.decode(data, type=EmailJob)
    except UNREADABLE as error:
        raise UsageError(f"{name} is no e-mail job: {error}") from error


def _check_headers(headers: dict[str, str]) -> None:
    if len(headers) > _MOST_HEADERS:
        raise ValueError(f"it has {len(headers)} headers: at most {_MOST_HEADERS} are sent")
    for name, value in headers.items():
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"header {name!r} is made from the job's own fields")
        if not _HEADER.fullmatch(name) or _CONTROLS.search(value.replace("\t", " ")):
            raise ValueError(f"header {name!r} has characters that no header may have")


def _spoken(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
