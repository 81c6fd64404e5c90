"""What a supervisor and its processes say to each other, over a socket pair: messages with their length before them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

_LENGTH = 4
_MUCH = 1 << 20
"""Bytes that may wait for somebody who does not read."""


class Order(Struct, frozen=True):
    """What a process is told when it is started, in its environment."""

    number: int  # from 1 on
    fd: int  # its end of the socket pair
    checks: bool = False  # it is only to say whether it could start


# -- from the child ----------------------------------------------------------------------------------------------------


class Started(Struct, frozen=True, tag=True):
    """Its worker runs."""

    grace: float  # seconds that its handlers may take when it is told to stop


class Beat(Struct, frozen=True, tag=True):
    """It lives, and has counted this so far."""

    counted: bytes = b""


class Answer(Struct, frozen=True, tag=True):
    """The answer to that question; None: it has none."""

    id: int
    body: bytes | None


# -- from the supervisor -----------------------------------------------------------------------------------------------


class Stop(Struct, frozen=True, tag=True):
    """Take nothing new; end when what runs is done."""


class Ask(Struct, frozen=True, tag=True):
    """A question, answered under its id."""

    id: int
    what: str
    text: str = ""


Said = Started | Beat | Answer
Told = Stop | Ask
M = TypeVar("M")


class Channel(Generic[M]):
    """One end. What the other end says is read by iterating; that ends when the other process does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, decoder: msgspec.msgpack.Decoder[M]):
        self._reader = reader
        self._writer = writer
        self._decoder = decoder

    @classmethod
    async def opened(cls, end: socket.socket, hears: object) -> Channel[M]:
        reader, writer = await asyncio.open_unix_connection(sock=end)
        return cls(reader, writer, msgspec.msgpack.Decoder(hears))

    def send(self, message: Said | Told) -> None:
        """Never waits. What nobody reads is not piled up."""
        if not self._writer.is_closing() and self._writer.transport.get_write_buffer_size() < _MUCH:
            data = msgspec.msgpack.encode(message)
            self._writer.write(len(data).to_bytes(_LENGTH, "big") + data)

    async def __aiter__(self) -> AsyncIterator[M]:
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
                yield self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def aclose(self) -> None:
        """What was sent is still read by the other end."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (ConnectionError, BrokenPipeError):
            return
