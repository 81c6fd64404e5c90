"""Amazon SES (its API v2) by aiobotocore. One call for each e-mail, and no retry of its own: those are the queue's."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import Any

from redrive.config.durations import duration
from redrive.errors import ConfigError, MissingExtra
from redrive.systems.email.senders.base import Mail, SendError, mime_of, parts_of

try:
    from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
    from aiobotocore.session import AioSession, get_session  # type: ignore[import-untyped]
    from botocore.exceptions import (  # type: ignore[import-untyped]
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )
except ImportError as error:
    raise MissingExtra("sending by SES", "email") from error

_OPTIONS = ("endpoint", "configuration_set", "timeout")
_TAG = re.compile(r"[A-Za-z0-9_.@-]{1,256}")


def open_sender(url: str) -> SesSender:
    """`ses://eu-west-1`; credentials come from where AWS' own tools find them.

    endpoint           the address of the API, for a stand-in or a VPC endpoint
    configuration_set  the SES configuration set of every e-mail
    timeout            of a call, `30s`
    """
    parts, given = parts_of(url, _OPTIONS)
    if not parts.hostname:
        raise ConfigError("the sender has no region: write it like ses://eu-west-1")
    timeout = duration(given.get("timeout", "30s")).total_seconds()
    return SesSender(parts.hostname, given.get("endpoint"), given.get("configuration_set"), timeout)


class SesSender:
    """One client for the life of the worker; SES takes an e-mail for all of its recipients or for none."""

    def __init__(
        self, region: str, endpoint: str | None = None, configuration_set: str | None = None, timeout: float = 30.0
    ) -> None:
        self._session: AioSession = get_session()
        self._set = {"ConfigurationSetName": configuration_set} if configuration_set else {}
        self._options = {
            "region_name": region,
            "endpoint_url": endpoint,
            "config": AioConfig(
                connect_timeout=timeout,
                read_timeout=timeout,
                retries={"total_max_attempts": 1},
                max_pool_connections=50,
            ),
        }
        self._open = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._client: Any = None

    async def send(self, mail: Mail) -> None:
        destination = _destination(mail)
        try:
            client = await self._connected()
            await client.send_email(
                FromEmailAddress=mail.job.sender.encoded,
                Destination=destination,
                Content={"Raw": {"Data": mime_of(mail).as_bytes()}},
                EmailTags=_tags(mail),
                **self._set,
            )
        except ClientError as error:
            code, text = _answer(error)
            raise SendError(f"SES {code}: {text}", code=code) from None  # its answer says it all
        except (BotoCoreError, OSError) as error:
            raise SendError(f"SES: {error or type(error).__name__}") from error

    async def check(self) -> None:
        """Raise ConfigError if there are no credentials: no job could ever be sent."""
        try:
            found = await self._session.get_credentials()
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise ConfigError(f"SES has no credentials: {error}") from error
        if found is None:
            raise ConfigError("SES has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role")

    async def aclose(self) -> None:
        self._client = None
        await self._open.aclose()

    async def _connected(self) -> Any:
        async with self._lock:
            if self._client is None:
                made = self._session.create_client("sesv2", **self._options)
                self._client = await self._open.enter_async_context(made)
        return self._client


def _destination(mail: Mail) -> dict[str, list[str]]:
    """The recipients for SES: who has it already is left out, and a blind copy stays blind."""
    job, left = mail.job, set(mail.recipients)
    destination: dict[str, list[str]] = {}
    for name, boxes in (("To", job.to_boxes), ("Cc", job.cc_boxes), ("Bcc", job.bcc_boxes)):
        for box in boxes:
            if box.address in left:
                left.remove(box.address)
                destination.setdefault(f"{name}Addresses", []).append(box.encoded)
    return destination


def _tags(mail: Mail) -> list[dict[str, str]]:
    """The tags of an e-mail: its outboxId, where it can be one, because SES replaces the Message-ID."""
    outbox = mail.job.outbox_id
    return [{"Name": "outboxId", "Value": outbox}] if _TAG.fullmatch(outbox) else []


def _answer(error: ClientError) -> tuple[str, str]:
    said = error.response.get("Error", {})
    return str(said.get("Code") or "Unknown").removesuffix("Exception"), str(said.get("Message") or "no reason given")
