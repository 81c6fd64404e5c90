"""SMTP by aiosmtplib: connections are kept and used again; one that failed is thrown away."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from redrive.config.durations import duration
from redrive.errors import ConfigError, MissingExtra
from redrive.systems.email.rules import is_retryable_error
from redrive.systems.email.senders.base import Mail, SendError, mime_of, parts_of, secret

try:
    import aiosmtplib
except ImportError as error:
    raise MissingExtra("sending by SMTP", "email") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONS = ("starttls", "timeout", "ca", "verify", "hello")
_STARTTLS: Mapping[str, bool | None] = {"auto": None, "required": True, "never": False}
_MOST_IDLE = 20
_SHOWN = 5
_GOODBYE = 2.0  # seconds in which a server may answer to the end


class SmtpServer(Struct, frozen=True, kw_only=True):
    """The address of a server, and how to connect to it."""

    host: str
    port: int
    username: str | None = None
    password: str | None = None
    use_tls: bool = False  # from the first byte
    starttls: bool | None = None  # None: if the server offers it
    timeout: timedelta = timedelta(seconds=30)
    context: ssl.SSLContext | None = None
    hello: str | None = None


def open_sender(url: str) -> SmtpSender:
    """`smtp://user:password@host:587?starttls=required`, `smtps://host:465`.

    starttls  auto (if it is offered), required, never
    timeout   of each command, `30s`
    ca        a file of certificates to trust instead of the system's
    verify    no: take any certificate
    hello     the name to greet with
    """
    parts, given = parts_of(url, _OPTIONS)
    if not parts.hostname:
        raise ConfigError("the sender has no host: write it like smtp://localhost:25")
    if given.get("starttls", "auto") not in _STARTTLS:
        raise ConfigError(f"starttls={given['starttls']!r}: it is one of {', '.join(_STARTTLS)}")
    secure = parts.scheme == "smtps"
    server = SmtpServer(
        host=parts.hostname,
        port=parts.port or (465 if secure else 587 if parts.username else 25),
        username=secret(parts.username),
        password=secret(parts.password),
        use_tls=secure,
        starttls=False if secure else _STARTTLS[given.get("starttls", "auto")],
        timeout=duration(given.get("timeout", "30s")),
        context=_context(given.get("ca"), given.get("verify", "yes")),
        hello=given.get("hello"),
    )
    return SmtpSender(server)


class SmtpSender:
    """One transaction for each e-mail, over connections that stay open between them."""

    def __init__(self, server: SmtpServer) -> None:
        self._server = server
        self._idle: list[aiosmtplib.SMTP] = []

    async def send(self, mail: Mail) -> None:
        message = mime_of(mail)
        async with self._connection() as smtp:
            refused, _ = await smtp.send_message(message, sender=mail.sender, recipients=mail.recipients)
        if refused:
            answers = [(who, answer.code, answer.message) for who, answer in refused.items()]
            raise _refused(answers, [recipient for recipient in mail.recipients if recipient not in refused])

    async def check(self) -> None:
        """Log in once: a password that is wrong now is wrong for every job."""
        try:
            async with self._connection():
                pass
        except SendError as error:
            if not error.retryable or "not supported" in str(error):  # STARTTLS, AUTH: the driver has no type for it
                raise ConfigError(f"the SMTP server {self._server.host} will not have us: {error}") from error

    async def aclose(self) -> None:
        idle, self._idle = self._idle, []
        for smtp in idle:
            with suppress(aiosmtplib.SMTPException, OSError):
                async with asyncio.timeout(_GOODBYE):
                    await smtp.quit()
            smtp.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[aiosmtplib.SMTP]:
        """A connection for one transaction. Whatever goes wrong in it, the next one gets another."""
        with _translated():
            smtp = await self._reused() or await self._connected()
            try:
                yield smtp
            except BaseException:
                smtp.close()
                raise
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(smtp)
            else:
                smtp.close()

    async def _reused(self) -> aiosmtplib.SMTP | None:
        """An idle connection that still answers: a server closes those that were idle for long."""
        while self._idle:
            smtp = self._idle.pop()
            try:
                await smtp.noop()
            except (aiosmtplib.SMTPException, OSError):
                smtp.close()
            else:
                return smtp
        return None

    async def _connected(self) -> aiosmtplib.SMTP:
        server = self._server
        smtp = aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            username=server.username,
            password=server.password,
            use_tls=server.use_tls,
            start_tls=server.starttls,
            timeout=server.timeout.total_seconds(),
            tls_context=server.context,
            local_hostname=server.hello,
        )
        try:
            await smtp.connect()
        except BaseException:
            smtp.close()
            raise
        return smtp


class _translated:
    """Raise SendError for every error of the driver. Of a refusal, the server's answer says all there is to say: the
    driver's stack would only be kept with each dead letter."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        match error:
            case aiosmtplib.SMTPRecipientsRefused(recipients=refused):
                answers = [(refusal.recipient, refusal.code, refusal.message) for refusal in refused]
                raise _refused(answers, []) from None
            case aiosmtplib.SMTPResponseException(code=code, message=text) if code > 0:
                raise SendError(f"SMTP {code}: {_said(text)}", code=str(code)) from None
            case aiosmtplib.SMTPNotSupported(message=text) if "SMTPUTF8" in text:
                raise SendError(f"SMTP: {text}", code="553") from error  # what RFC 6531 says of an address like it
            case aiosmtplib.SMTPException() | OSError():
                raise SendError(f"SMTP: {error or type(error).__name__}") from error


def _refused(answers: Sequence[tuple[str, int, str]], accepted: Sequence[str]) -> SendError:
    """The SendError of refused recipients: worth a retry while one may still be reached."""
    code = next((code for _, code, _ in answers if is_retryable_error(code)), answers[0][1])
    shown = "; ".join(f"SMTP {code}: {_said(text)} <{who}>" for who, code, text in answers[:_SHOWN])
    more = f"; and {len(answers) - _SHOWN} more" if len(answers) > _SHOWN else ""
    return SendError(f"{shown}{more}", code=str(code), accepted=accepted)


def _said(text: str) -> str:
    return " ".join(text.split()) or "no reason given"


def _context(ca: str | None, verify: str) -> ssl.SSLContext | None:
    if verify not in ("yes", "no"):
        raise ConfigError(f"verify={verify!r}: it is yes or no")
    if ca is None and verify == "yes":
        return None
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ConfigError(f"ca={ca!r} cannot be read: {error}") from error
    if verify == "no":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
