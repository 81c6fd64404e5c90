"""Parts of the client that we replace. Imported only when a URL is opened: it needs the extra."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from io import BytesIO
from typing import Any

import msgspec
from opensearchpy import AIOHttpConnection
from opensearchpy.exceptions import SerializationError
from opensearchpy.serializer import JSONSerializer

_LARGE = 1 << 20  # aiohttp wants no more than that in one piece


class Connection(AIOHttpConnection):
    """Sends large bodies piece by piece, and leaves it to us to say what failed."""

    async def perform_request(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        timeout: float | None = None,
        ignore: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        data: Any = BytesIO(body) if body is not None and len(body) > _LARGE else body
        return await super().perform_request(method, url, params, data, timeout, ignore, headers)

    def log_request_fail(self, *args: Any, **kwargs: Any) -> None:
        return None


class Serializer(JSONSerializer):
    """Serializes with msgspec, several times as fast as the client's own."""

    def loads(self, s: str) -> Any:
        try:
            return msgspec.json.decode(s)
        except msgspec.DecodeError as error:
            raise SerializationError(s, error) from error
