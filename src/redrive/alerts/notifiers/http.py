"""What notifiers that speak HTTP share: a client, and errors that say whether to try again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from redrive.alerts.model import Undelivered
from redrive.errors import ConfigError, MissingExtra
from redrive.forensics.secrets import hidden_url

try:
    import httpx
except ImportError as error:
    raise MissingExtra("this notifier", "alerts") from error

_PATIENCE = 10.0
_LONGEST_WAIT = timedelta(hours=1)
_LONGEST_ANSWER = 200


class Http:
    """Posts to one address. No text of an error holds the address."""

    def __init__(self, url: str, scheme: str) -> None:
        try:
            self.url = httpx.URL(url.replace(url.partition("://")[0], scheme, 1)).copy_with(fragment=None)
        except httpx.InvalidURL:
            raise ConfigError(f"alerts.urls: {hidden_url(url)} is no valid URL") from None
        if not self.url.host:
            raise ConfigError(f"alerts.urls: {hidden_url(url)} names no host")
        self._client: httpx.AsyncClient | None = None

    def at(self, path: str) -> httpx.URL:
        """The URL of that path below the address."""
        return self.url.copy_with(path=self.url.path.rstrip("/") + path)

    async def post(self, url: httpx.URL, value: Any, headers: dict[str, str] | None = None) -> None:
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        await self._asked("POST", url, content=body, headers={"Content-Type": "application/json", **(headers or {})})

    async def get(self, url: httpx.URL) -> None:
        await self._asked("GET", url)

    async def reach(self) -> None:
        """Raise Undelivered if nobody listens at the address."""
        port = self.url.port or {"http": 80, "https": 443}[self.url.scheme]
        try:
            async with asyncio.timeout(_PATIENCE):
                _, writer = await asyncio.open_connection(self.url.host, port)
            writer.close()
        except (OSError, TimeoutError) as error:
            raise Undelivered(f"cannot connect: {_why(error)}") from None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _asked(self, method: str, url: httpx.URL, **given: Any) -> None:
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=_PATIENCE)
        try:
            answer = await self._client.request(method, url, **given)
        except httpx.HTTPError as error:
            raise Undelivered(_why(error)) from None  # its own text and context may name the address
        if not answer.is_success:
            raise _refused(answer)


def _why(error: Exception) -> str:
    names = {"ConnectError": "connection refused or host unknown", "TimeoutError": "no answer in time"}
    kind = "TimeoutError" if isinstance(error, httpx.TimeoutException) else type(error).__name__
    return names.get(kind, kind)


def _refused(answer: httpx.Response) -> Undelivered:
    """The error of an answer: a 4xx is final, except those that ask to come later."""
    status = answer.status_code
    later = status in (408, 425, 429) or status >= 500
    said = " ".join(answer.text[:_LONGEST_ANSWER].split())
    why = f"answered {status}{': ' + said if said else ''}"
    return Undelivered(why, retryable=later, after=_wait(answer.headers.get("retry-after")))


def _wait(text: str | None) -> timedelta | None:
    """The wait that `Retry-After` asks for, in seconds or as a date; None if there is none, or nonsense."""
    if text is None:
        return None
    try:
        wait = timedelta(seconds=float(text)) if text.strip().isdigit() else _until(text)
    except (ValueError, OverflowError, TypeError):
        return None
    return min(max(wait, timedelta()), _LONGEST_WAIT)


def _until(text: str) -> timedelta:
    moment = parsedate_to_datetime(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)
