"""The interface to whoever delivers e-mail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import blake2b
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from redrive.errors import ConfigError, HandlerError, nearest
from redrive.systems.email.job import EmailJob
from redrive.systems.email.rules import canonical_code, verdict_of


class Mail(Struct, frozen=True):
    """A job, the time it goes out, and those of its recipients who have not got it yet."""

    job: EmailJob
    recipients: tuple[str, ...]
    at: datetime

    @property
    def sender(self) -> str:
        return self.job.sender.address

    @property
    def message_id(self) -> str:
        """The Message-ID, the same in every attempt, so that a mailbox can see that it has it already."""
        return message_id(self.job.outbox_id, self.sender)


class Sender(Protocol):
    """Delivers e-mail. Raises SendError, and no error of its driver, for whom it could not."""

    async def send(self, mail: Mail) -> None:
        """Send it; returns when the server has accepted every recipient."""
        ...

    async def check(self) -> None:
        """Raise ConfigError for what no retry will mend, such as a wrong password; say nothing of a server that is
        away for now."""
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


class SendError(HandlerError):
    """An e-mail was not sent, or not to everybody. Its code says whether trying again can help."""

    def __init__(
        self, reason: str, *, code: str | None = None, accepted: Sequence[str] = (), retryable: bool | None = None
    ) -> None:
        verdict = None if code is None else verdict_of(canonical_code(code))
        super().__init__(reason, code=verdict.code if verdict else None, category=verdict.category if verdict else None)
        self.accepted = tuple(accepted)  # who has it all the same, and must not get it again
        self.retryable = (verdict is None or verdict.retryable) if retryable is None else retryable


def mime_of(mail: Mail) -> EmailMessage:
    """The message as it goes over the wire. Who gets a blind copy is not in it."""
    job, message = mail.job, EmailMessage(policy=SMTP)
    message["From"] = job.sender.header
    for name, boxes in (("To", job.to_boxes), ("Cc", job.cc_boxes), ("Reply-To", job.reply_to_boxes)):
        if boxes:
            message[name] = [box.header for box in boxes]
    message["Subject"] = job.subject
    message["Date"] = format_datetime(mail.at)
    message["Message-ID"] = mail.message_id
    for name, value in job.headers.items():
        message[name] = value
    _fill(message, job)
    return message


def message_id(outbox_id: str, sender: str) -> str:
    """The Message-ID `<outboxId@domain>`; an outboxId that cannot stand there is hashed."""
    domain = sender.rpartition("@")[2]
    domain = domain if domain.isascii() else "redrive.invalid"
    plain = (
        outbox_id.isascii()
        and len(outbox_id) <= 200
        and all(character.isalnum() or character in "-_." for character in outbox_id)
    )
    local = outbox_id if plain else blake2b(outbox_id.encode("utf-8", "replace"), digest_size=16).hexdigest()
    return f"<{local}@{domain}>"


def parts_of(url: str, options: Sequence[str]) -> tuple[SplitResult, dict[str, str]]:
    """A sender's URL and its options, which have to be known ones."""
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"the URL of the sender cannot be used: {error}") from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given:
        if name not in options:
            raise ConfigError(f"the sender has no option {name!r}{nearest(name, options)}")
    return parts, given


def secret(text: str | None) -> str | None:
    """A part of a URL, unescaped."""
    return None if text is None else unquote(text)


def _fill(message: EmailMessage, job: EmailJob) -> None:
    if job.text is not None:
        message.set_content(job.text)
    if job.html is not None and job.text is not None:
        message.add_alternative(job.html, subtype="html")
    elif job.html is not None:
        message.set_content(job.html, subtype="html")
