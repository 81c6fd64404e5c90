"""A plain webhook: `webhook+https://host/path`, all notices of a moment in one JSON body.

With a secret after `#` (it is never sent) each request is signed: `X-Redrive-Signature` is `sha256=` and the HMAC of
`X-Redrive-Timestamp`, a dot and the body.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence

import msgspec

from redrive.alerts.model import Notice, Notifier
from redrive.alerts.notifiers.http import Http


class Webhook(Notifier):
    """Posts all notices in one body; any 2xx says that it was taken. A notice may come twice, with the same id."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self._http = Http(url, url.partition("://")[0].partition("+")[2])
        self._secret = url.partition("#")[2].encode()

    async def notify(self, notices: Sequence[Notice]) -> None:
        body = msgspec.json.encode({"version": 1, "notices": notices})
        await self._http.post(self._http.url, body, self._signed(body))

    async def check(self) -> None:
        await self._http.reach()

    async def aclose(self) -> None:
        await self._http.aclose()

    def _signed(self, body: bytes) -> dict[str, str]:
        if not self._secret:
            return {}
        at = str(int(time.time()))
        return {"X-Redrive-Timestamp": at, "X-Redrive-Signature": signature(self._secret, at, body)}


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """The signature of a body, for a receiver to compare the header with."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
