"""Which queue a source is, where it is, and how large its messages may be."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from redrive.errors import ConfigError
from redrive.transports.sqs.api import Api, Refusal
from redrive.transports.sqs.options import Options

LARGEST = 1 << 20
"""Bytes of a message with its attributes, and of all messages of a request, unless the queue says less."""
_LONGEST_NAME = 80
_RETENTION = timedelta(days=14)  # the longest that SQS keeps a message
_FIFO = ".fifo"
_LEGAL = re.compile(r"[A-Za-z0-9_-]+")
_CODED = "redrive-x-"  # begins the name of a queue whose source has a name that SQS does not take


class Queue(Struct, frozen=True):
    """A queue as SQS knows it."""

    url: str
    name: str
    largest: int


class Queues:
    """The queues of this process' sources, looked up once."""

    def __init__(self, api: Api, options: Options, visibility: int) -> None:
        self._api = api
        self._options = options
        self._visibility = visibility
        self._known: dict[str, Queue] = {}
        self._looking: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def sources(self) -> list[str]:
        return list(self._known)

    async def get(self, source: str, *, make: bool) -> Queue:
        """The queue of that source. Raises Refusal if it is missing, and is not to be made."""
        if (known := self._known.get(source)) is not None:
            return known
        async with self._looking[source]:
            if source not in self._known:
                self._known[source] = await self._found(self.name_of(source), make and self._options.create)
            return self._known[source]

    def forget(self, source: str) -> None:
        """Look again the next time: it was deleted."""
        self._known.pop(source, None)

    async def has(self, source: str) -> bool:
        try:
            await self.get(source, make=False)
        except Refusal as error:
            if error.is_missing:
                return False
            raise
        return True

    async def every(self) -> dict[str, str]:
        """The URLs of all queues with our prefix, and of those that this process uses, by source."""
        found = {source: queue.url for source, queue in self._known.items()}
        token: str | None = None
        while True:
            page = await self._page(token)
            for url in page.get("QueueUrls") or ():
                source = self.source_of(url.rpartition("/")[2])
                if source is not None and url not in found.values():
                    found.setdefault(source, url)
            token = page.get("NextToken")
            if not token:
                return found

    async def _page(self, token: str | None) -> dict[str, Any]:
        options: dict[str, Any] = {"NextToken": token} if token else {}
        if self._options.prefix:
            options["QueueNamePrefix"] = self._options.prefix
        try:
            return await self._api.call("ListQueues", MaxResults=1000, **options)
        except Refusal as error:
            if error.is_denied:  # who may only use some queues is not told of others
                return {}
            raise

    async def _found(self, name: str, make: bool) -> Queue:
        try:
            url = (await self._api.call("GetQueueUrl", QueueName=name))["QueueUrl"]
        except Refusal as error:
            if not error.is_missing or not make:
                raise
            url = (await self._api.call("CreateQueue", QueueName=name, Attributes=self._attributes()))["QueueUrl"]
        return Queue(url, name, await self._largest(url))

    async def _largest(self, url: str) -> int:
        try:
            answer = await self._api.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["MaximumMessageSize"])
        except Refusal:  # without the right to ask, or of a server that does not know it
            return LARGEST
        said = str((answer.get("Attributes") or {}).get("MaximumMessageSize", ""))
        return int(said) if said.isdecimal() and int(said) >= 1024 else LARGEST

    def _attributes(self) -> dict[str, str]:
        made = {
            "VisibilityTimeout": str(self._visibility),
            "MessageRetentionPeriod": str(round(_RETENTION.total_seconds())),
        }
        return made | ({"FifoQueue": "true"} if self._options.fifo else {})

    def name_of(self, source: str) -> str:
        """Its own name where SQS takes it, in code where not."""
        ending = _FIFO if self._options.fifo else ""
        if source.endswith(_FIFO) and not self._options.fifo:
            raise ConfigError(f"{source!r} is a FIFO queue: name it {source.removesuffix(_FIFO)!r}, with ?fifo=yes")
        space = _LONGEST_NAME - len(self._options.prefix) - len(ending)
        name = source.removesuffix(ending)
        if not _LEGAL.fullmatch(name) or name.startswith(_CODED) or len(name) > space:
            name = _coded(name, space)
        return f"{self._options.prefix}{name}{ending}"

    def source_of(self, queue: str) -> str | None:
        """The source of a queue; None if it is none of ours: of another prefix, or of the other kind."""
        ending = _FIFO if self._options.fifo else ""
        if not queue.startswith(self._options.prefix) or queue.endswith(_FIFO) != self._options.fifo:
            return None
        name = queue.removeprefix(self._options.prefix).removesuffix(ending)
        try:
            return bytes.fromhex(name.removeprefix(_CODED)).decode() if name.startswith(_CODED) else name
        except ValueError:
            return name


def _coded(name: str, space: int) -> str:
    """A name that can be read back, or, where that is too long, one that is always the same."""
    raw = name.encode("utf-8", "surrogatepass")
    coded = f"{_CODED}{raw.hex()}"
    return coded if len(coded) <= space else f"redrive-h-{blake2b(raw, digest_size=12).hexdigest()}"
