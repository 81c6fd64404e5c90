"""Calls SQS: one signed request of its JSON protocol for each action.

Endpoint, region and credentials are found by botocore, as AWS' own tools find them, and requests are signed by it. Its
clients are not used for the requests themselves: they cost three times as much processor time as the rest of the work.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiobotocore.session import AioSession  # type: ignore[import-untyped]
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]

from redrive.errors import ConfigError, TransportUnavailable
from redrive.transports.sqs.options import Options

_AT_ONCE = 64  # connections
_CONNECT, _ANSWER = 10.0, 30.0  # seconds
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_THROTTLED = ("Throttl", "TooManyRequests", "SlowDown", "OverLimit", "BandwidthLimitExceeded")
_DENIED = ("AccessDenied", "AccessDeniedException", "AWS.SimpleQueueService.AccessDenied")


class NotConnected(TransportUnavailable):
    """Nobody is there: nothing was sent, so nothing was taken."""


class Refusal(TransportUnavailable):
    """SQS answered, and did not do it.

    code   its word for why, without what is before the `#`
    """

    def __init__(self, name: str, code: str, text: str, status: int) -> None:
        super().__init__(name, f"{code}: {text}" if text else code)
        self.code = code
        self.status = status

    @property
    def is_throttled(self) -> bool:
        return is_throttled(self.code) or self.status == 429

    @property
    def is_denied(self) -> bool:
        return self.code in _DENIED

    @property
    def is_missing(self) -> bool:
        return "NonExistentQueue" in self.code or "QueueDoesNotExist" in self.code


def is_throttled(code: str) -> bool:
    """Whether a code says that it was too much at once."""
    return any(word in code for word in _THROTTLED)


class Api:
    """One connection pool to one endpoint, opened when it is first needed."""

    def __init__(self, options: Options) -> None:
        self.name = options.shown
        self._options = options
        self._opening = asyncio.Lock()
        self._http: aiohttp.ClientSession | None = None
        self._credentials: Any = None
        self._endpoint = ""
        self.region = ""

    async def call(self, action: str, /, *, patience: float = 0.0, **options: Any) -> dict[str, Any]:
        """The answer of SQS. Raises Refusal, NotConnected, or TransportUnavailable if the answer got lost.

        patience   seconds that SQS was asked to wait
        """
        http = self._http or await self._opened()
        payload = msgspec.json.encode(options)
        headers = await self._signed(action, payload)
        try:
            timeout = aiohttp.ClientTimeout(connect=_CONNECT, total=_ANSWER + patience)
            async with http.post(self._endpoint, data=payload, headers=headers, timeout=timeout) as answer:
                text = await answer.read()
                if answer.status == 200:
                    return _decoded(text) if text else {}
                raise self._refusal(answer.status, answer.headers.get("x-amzn-query-error", ""), text)
        except aiohttp.ClientConnectorError as error:
            raise NotConnected(self.name, str(error)) from error
        except TimeoutError as error:
            raise TransportUnavailable(self.name, f"no answer to {action} in time") from error
        except (aiohttp.ClientError, OSError, msgspec.MsgspecError) as error:
            raise TransportUnavailable(self.name, str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def _opened(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._http is None:
                await self._find()
                connector = aiohttp.TCPConnector(limit=_AT_ONCE)
                trusts = urlsplit(self._endpoint).hostname not in _LOOPBACK  # nobody reaches loopback by a proxy
                self._http = aiohttp.ClientSession(connector=connector, trust_env=trusts, auto_decompress=True)
            return self._http

    async def _find(self) -> None:
        """Find out where SQS is, and as whom we speak to it."""
        options = self._options
        try:
            session = AioSession(profile=options.profile)
            if options.access_key:
                session.set_credentials(options.access_key, options.secret_key)
            region = options.region or session.get_config_variable("region")
            if region is None and options.endpoint is None:
                raise ConfigError("SQS: no region is set: write it like sqs://?region=eu-central-1, or set AWS_REGION")
            if options.endpoint is not None:  # then there is nothing to look up, which takes a moment
                self._endpoint, self.region = options.endpoint, region or "us-east-1"
            else:
                async with session.create_client("sqs", region_name=region) as client:
                    self._endpoint, self.region = client.meta.endpoint_url, client.meta.region_name
            self._credentials = await session.get_credentials()
        except BotoCoreError as error:
            raise ConfigError(f"SQS: {error}") from error
        if self._credentials is None:
            raise ConfigError(
                "SQS: no credentials are found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give this machine a "
                "role, or name a profile=… in the URL"
            )

    async def _signed(self, action: str, payload: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
        request = AWSRequest("POST", self._endpoint, headers, payload)
        try:
            credentials = await self._credentials.get_frozen_credentials()
        except BotoCoreError as error:  # of a role, whose keys are renewed over the network
            raise TransportUnavailable(self.name, f"no credentials: {error}") from error
        SigV4Auth(credentials, "sqs", self.region).add_auth(request)
        return dict(request.headers.items())

    def _refusal(self, status: int, query_error: str, text: bytes) -> Refusal:
        try:
            said = msgspec.json.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            said = {}
        said = said if isinstance(said, dict) else {}
        code = str(said.get("__type") or query_error.partition(";")[0] or f"HTTP {status}").rpartition("#")[2]
        return Refusal(self.name, code, str(said.get("message") or said.get("Message") or ""), status)


def _decoded(text: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    return answer
