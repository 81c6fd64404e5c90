"""EmailJob: what is queued. Its bytes stay as the producer wrote them; this is how they are read."""

from __future__ import annotations

import re
from email.utils import parseaddr
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from redrive.errors import UsageError

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_SPACE = re.compile(r"\s")
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
    cc: list[str] = []
    bcc: list[str] = []
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
        if not self.recipients:
            raise ValueError("it has no recipient: give at least one address in to, cc or bcc")
        for address in (self.from_, *self._to, *self.cc, *self.bcc, *([self.reply_to] if self.reply_to else [])):
            address_of(address)
        _check_headers(self.headers)

    @property
    def _to(self) -> list[str]:
        return [self.to] if isinstance(self.to, str) else self.to

    @property
    def to_list(self) -> list[str]:
        """The addresses of `to`, which may be given as one text."""
        return self._to

    @property
    def recipients(self) -> tuple[str, ...]:
        """Every address that it goes to, bare, each once, in order."""
        return tuple(dict.fromkeys(address_of(address) for address in (*self._to, *self.cc, *self.bcc)))


def address_of(text: str) -> str:
    """The bare address of `Ana <ana@example.com>`, or ValueError where there is none."""
    if _CONTROLS.search(text):
        raise ValueError(f"{text!r} has control characters: it is no address")
    address = parseaddr(text)[1]
    local, at, domain = address.rpartition("@")
    if not (local and at and domain) or _SPACE.search(address) or "@" in local.strip('"'):
        raise ValueError(f"{text!r} is no address: write ana@example.com or Ana <ana@example.com>")
    return address


def read_job(data: bytes, name: str = "the job") -> EmailJob:
    """The job of those bytes, or a UsageError that says what is wrong with it."""
    try:
        return msgspec.json.decode(data, type=EmailJob)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
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
