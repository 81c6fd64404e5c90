"""One request to a server: its answer as the struct that it is, or the error that it stands for."""

from __future__ import annotations

import ssl
from asyncio import sleep
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from redrive.access.proxies import client_for
from redrive.errors import ConfigError, MissingExtra, Unavailable, UsageError
from redrive.remote.problems import NotLoggedIn, approval_in, error_of
from redrive.untrusted import UNREADABLE

try:
    import httpx
except ImportError as error:
    raise MissingExtra("--server", "remote") from error

T = TypeVar("T")
_CONNECT, _READ = 10.0, 300.0  # seconds; an act on many letters answers when it is done
_TRIES, _LONGEST_WAIT = 10, 30.0  # of a question that a busy server has no place for, and seconds between two
_WRONG_CERTIFICATE = (
    "the certificate of {server} is not to be trusted: {why}.\nIf a certificate authority of your own signed it, name "
    "its certificate with --ca-file FILE (REDRIVE_CA_FILE). Nothing was sent."
)
Fresh = Callable[[str], Awaitable[str | None]]
"""Gets another token for the one that was sent, which has expired; None if there is no other."""


class Http:
    """Asks one server, with one token. Follows no redirect: the token is for the server that was named."""

    def __init__(self, server: str, token: str, *, ca_file: Path | None = None, fresh: Fresh | None = None) -> None:
        self.server = server
        self._fresh = fresh
        self._token = token
        self._client = client_for(
            server,
            base_url=_url_of(server),
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"} if token else {},
            timeout=httpx.Timeout(_READ, connect=_CONNECT),
            verify=trusted(ca_file),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, kind: Any, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """The answer as that kind."""
        return await self._asked(kind, "GET", path, params=_parameters(params or {}))

    async def post(self, kind: Any, path: str, body: Any = None) -> Any:
        return await self._asked(kind, "POST", path, content=b"" if body is None else msgspec.json.encode(body))

    async def post_bytes(self, kind: Any, path: str, body: bytes, params: Mapping[str, Any] | None = None) -> Any:
        return await self._asked(kind, "POST", path, params=_parameters(params or {}), content=body)

    async def delete(self, kind: Any, path: str) -> Any:
        return await self._asked(kind, "DELETE", path)

    async def stream(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None
    ) -> AsyncIterator[bytes]:
        """The answer as it comes. One that breaks off is an error, and never looks whole."""
        more: dict[str, Any] = {
            "params": _parameters(params or {}),
            "content": b"" if body is None else msgspec.json.encode(body),
        }
        async with self._translated():
            is_new, tries = False, _TRIES
            while True:
                async with self._client.stream(method, path, **more) as answer:
                    if answer.status_code == 401 and not is_new and await self._renewed():
                        is_new = True
                        continue
                    wait = _wait_of(answer) if tries else None
                    if wait is None:
                        if answer.status_code != 200:
                            raise self._error(answer.status_code, await answer.aread())
                        async for part in answer.aiter_bytes():
                            yield part
                        return
                tries -= 1
                await sleep(wait)

    async def _asked(self, kind: Any, method: str, path: str, **more: Any) -> Any:
        async with self._translated():
            answer = await self._answer(method, path, **more)
            if answer.status_code == 401 and await self._renewed():
                answer = await self._answer(method, path, **more)
        if not answer.is_success:
            raise self._error(answer.status_code, answer.content)
        if answer.status_code == 202 and (waits := approval_in(answer.content)) is not None:
            raise waits
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except UNREADABLE as error:
            raise UsageError(
                f"{self.server} does not answer as this version of Redrive does ({error}): is it one, and as new?"
            ) from error

    async def _answer(self, method: str, path: str, **more: Any) -> httpx.Response:
        """The answer; a server that has no place for a costly question is asked again when it says."""
        for _ in range(_TRIES):
            answer = await self._client.request(method, path, **more)
            if (wait := _wait_of(answer)) is None:
                return answer
            await sleep(wait)
        return await self._client.request(method, path, **more)

    async def _renewed(self) -> bool:
        token = None if self._fresh is None else await self._fresh(self._token)
        if token is None:
            return False
        self._token = token
        self._client.headers["Authorization"] = f"Bearer {token}"
        return True

    def _error(self, status: int, body: bytes) -> Exception:
        if 300 <= status < 400:
            return UsageError(f"{self.server} sends you elsewhere ({status}): give the address that it has itself")
        return error_of(status, body, self.server)

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        async with translated(self.server):
            yield


@asynccontextmanager
async def translated(server: str) -> AsyncIterator[None]:
    """What httpx raises, as what a command says."""
    try:
        yield
    except httpx.ConnectError as error:
        if (why := _of_certificate(error)) is not None:
            raise UsageError(_WRONG_CERTIFICATE.format(server=server, why=why)) from error
        raise Unavailable(server, str(error) or "it cannot be reached") from error
    except httpx.TimeoutException as error:
        raise Unavailable(server, "it does not answer in time") from error
    except httpx.RemoteProtocolError as error:
        raise Unavailable(server, f"its answer broke off ({error})") from error
    except httpx.InvalidURL as error:  # of what is asked: the address itself was looked at before
        raise UsageError(
            f"that is more than {server} is asked at once: name less, or a shorter text ({error})"
        ) from error
    except httpx.HTTPError as error:
        raise Unavailable(server, str(error) or type(error).__name__) from error


def trusted(ca_file: Path | None) -> ssl.SSLContext:
    """What certificates are checked against: those that the system trusts, and this one."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--ca-file {ca_file}: {getattr(error, 'strerror', None) or error}") from error
    return context


def _url_of(server: str) -> httpx.URL:
    try:
        return httpx.URL(server)
    except httpx.InvalidURL as error:
        raise UsageError(f"--server {server!r} is no address: {error}") from None


def _wait_of(answer: httpx.Response) -> float | None:
    """Seconds after which a busy server, which has begun nothing, wants to be asked again; None if it does not."""
    said = answer.headers.get("retry-after", "") if answer.status_code == 429 else ""
    return min(float(said), _LONGEST_WAIT) if said.isdecimal() else None


def _of_certificate(error: BaseException) -> str | None:
    """Why a certificate was refused, if that is what happened."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        cause = cause.__cause__ or cause.__context__
    return "certificate verify failed" if "CERTIFICATE_VERIFY_FAILED" in str(error) else None


def _parameters(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Parameters of a URL: a list is its name again and again, and what is not given is left out."""
    plain: dict[str, Any] = msgspec.to_builtins(dict(given))
    lists = {name: value if isinstance(value, list | tuple) else [value] for name, value in plain.items()}
    return [(name, _text(part)) for name, parts in lists.items() for part in parts if part is not None]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


__all__ = ["Fresh", "Http", "NotLoggedIn", "translated", "trusted"]
