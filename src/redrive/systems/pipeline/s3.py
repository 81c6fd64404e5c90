"""A repository in a bucket of S3, or of anything that speaks its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from redrive.errors import ConfigError, MissingExtra, Unavailable, UsageError, nearest

try:
    from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
    from aiobotocore.session import get_session  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
except ImportError as error:
    raise MissingExtra("a repository in S3", "s3") from error

_OPTIONS = ("endpoint", "region")
_CONNECT, _READ, _TRIES = 10, 60, 3


def s3_repository(url: str) -> S3Repository:
    """`s3://bucket/prefix`; credentials come from where AWS' own tools find them.

    endpoint   the address of the API, for MinIO and the like: http://127.0.0.1:9000
    region     where the bucket is, if the environment does not say it
    """
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given:
        if name not in _OPTIONS:
            raise ConfigError(f"unknown option {name!r} of a repository in S3{nearest(name, _OPTIONS)}")
    if not parts.netloc:
        raise ConfigError("the repository has no bucket: write it like s3://bucket/prefix")
    return S3Repository(parts.netloc, unquote(parts.path).strip("/"), given.get("endpoint"), given.get("region"))


class S3Repository:
    """A repository in a bucket. Its client is made when it is first needed."""

    def __init__(self, bucket: str, prefix: str = "", endpoint: str | None = None, region: str | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._options = {
            "endpoint_url": endpoint,
            "region_name": region,
            "config": AioConfig(
                connect_timeout=_CONNECT,
                read_timeout=_READ,
                retries={"total_max_attempts": _TRIES},
                s3={"addressing_style": "path"} if endpoint else {},  # a stand-in has no host name for each bucket
            ),
        }
        self._open = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Any = None

    async def put(self, key: str, content: bytes) -> None:
        async with self._calling(key) as client:
            await client.put_object(Bucket=self._bucket, Key=self._name(key), Body=content)

    async def get(self, key: str) -> bytes:
        async with self._calling(key) as client:
            answer = await client.get_object(Bucket=self._bucket, Key=self._name(key))
            async with answer["Body"] as body:
                content: bytes = await body.read()
                return content

    async def aclose(self) -> None:
        self._client = None
        await self._open.aclose()

    def _name(self, key: str) -> str:
        if not key:
            raise UsageError("'' is no key of a document: it needs a name")
        return self._prefix + key

    @asynccontextmanager
    async def _calling(self, key: str) -> AsyncIterator[Any]:
        """Translate errors of the driver into ours."""
        try:
            async with self._opening:
                if self._client is None:
                    made = get_session().create_client("s3", **self._options)
                    self._client = await self._open.enter_async_context(made)
            yield self._client
        except ClientError as error:
            raise self._error(error, key) from error
        except (BotoCoreError, OSError) as error:
            raise Unavailable("S3", str(error) or type(error).__name__) from error

    def _error(self, error: ClientError, key: str) -> Exception:
        said = error.response.get("Error", {})
        match code := str(said.get("Code") or "Unknown"):
            case "NoSuchKey":
                return UsageError(f"there is no document {key!r} in s3://{self._bucket}/{self._prefix}")
            case "NoSuchBucket":
                return ConfigError(f"there is no bucket {self._bucket!r}: create it, or mend the URL of the repository")
        return Unavailable("S3", f"{code}: {said.get('Message') or 'no reason given'}")
