"""A connection to RabbitMQ on the event loop, its channels, and their errors as Redrive's.

pika answers by callbacks; here they are futures. A channel that closes fails everything that waits on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from redrive.drivers.reach import misunderstood, unreachable
from redrive.errors import ConfigError, MissingExtra, TransportUnavailable

try:
    import pika
    from pika.channel import Channel as Raw
    from pika.exceptions import (
        AMQPError,
        ChannelClosedByBroker,
        ConnectionClosedByBroker,
        ProbableAccessDeniedError,
        ProbableAuthenticationError,
    )
except ImportError as error:  # pragma: no cover
    raise MissingExtra("RabbitMQ", "rabbitmq") from error

from redrive.transports.rabbitmq.options import Options
from redrive.transports.rabbitmq.pika_internals import Connection

_log = logging.getLogger("pika")
if _log.level == logging.NOTSET:
    _log.setLevel(logging.CRITICAL)  # lines for each channel, and many for each try; what matters, we say ourselves
NOT_FOUND, CLASHES, REFUSED = 404, 406, 403
Frame: TypeAlias = Any
T = TypeVar("T")
_OPENING, _CLOSING = 15.0, 10.0
_FIRST = 2.0  # so long the first connection is waited for: who is not there is told of within 5 s
_NET = 0.5
_PIKA = logging.getLogger("pika")
if _PIKA.level == logging.NOTSET:
    _PIKA.setLevel(logging.CRITICAL)  # many lines while a broker is away; what matters, we say ourselves


class ChannelClosed(TransportUnavailable):
    """The broker closed a channel, and said why."""

    def __init__(self, name: str, why: str, code: int) -> None:
        super().__init__(name, why)
        self.code = code


class Unwelcome(TransportUnavailable):
    """The broker is there, and does not let us in."""


class Channel:
    """A channel, on which each call waits for its answer."""

    def __init__(self, raw: Raw, name: str) -> None:
        self.raw = raw
        self.on_close: list[Callable[[TransportUnavailable], None]] = []
        self.closed: TransportUnavailable | None = None
        self._name = name
        self._waiting: set[asyncio.Future[Frame]] = set()
        raw.add_on_close_callback(self._closed)

    async def call(self, method: Callable[..., object], *arguments: Any, **options: Any) -> Frame:
        """`await channel.call(channel.raw.queue_declare, "q", durable=True)`."""
        if self.closed is not None:
            raise self.closed
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        try:
            method(*arguments, **options, callback=lambda frame: _give(answer, frame))
            return await answer
        except AMQPError as error:
            raise self.closed or TransportUnavailable(self._name, _why(error)) from error
        finally:
            self._waiting.discard(answer)

    def tell(self, method: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Send what has no answer, such as an ack. If it gets lost, what it was about is delivered again."""
        try:
            method(*arguments, **options)
        except AMQPError as error:
            raise self.closed or TransportUnavailable(self._name, _why(error)) from error

    async def close(self) -> None:
        if self.closed is None and self.raw.is_open:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.on_close.append(lambda _: _give(done, None))
            self.raw.close()
            await done

    def abandon(self) -> None:
        """Close it without waiting for the broker."""
        if self.raw.is_open:
            self.raw.close()

    def _closed(self, _: Raw, reason: BaseException) -> None:
        code = reason.reply_code if isinstance(reason, ChannelClosedByBroker | ConnectionClosedByBroker) else 0
        self.closed = self.closed or ChannelClosed(self._name, _why(reason), code)
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(self.closed)
        for callback in tuple(self.on_close):
            callback(self.closed)


class Link:
    """The connection, made when it is first needed, and again when it was lost."""

    def __init__(self, options: Options) -> None:
        self.name = options.shown
        try:
            self._parameters = pika.URLParameters(options.url)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{options.shown}: {error}") from error
        self._parameters.heartbeat = self._parameters.heartbeat or 30
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._waiting: set[asyncio.Future[Raw]] = set()  # for channels
        self.blocked = ""  # why the broker takes nothing from publishers now
        self._met = False  # whether it ever let us in
        self._server = options.server

    @property
    def user(self) -> str:
        """Who we are to the broker."""
        return str(getattr(self._parameters.credentials, "username", ""))

    @property
    def frame_max(self) -> int:
        """The bytes of a frame, as agreed with the broker."""
        return int((self._parameters if self._connection is None else self._connection.params).frame_max)

    async def channel(self) -> Channel:
        """Open a channel; TransportUnavailable, saying why, if there is no connection."""
        connection = await self._connected()
        opened: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting.add(opened)
        try:
            connection.channel(on_open_callback=lambda raw: raw.close() if opened.done() else opened.set_result(raw))
            return Channel(await opened, self.name)
        except AMQPError as error:
            raise TransportUnavailable(self.name, _why(error)) from error
        finally:
            self._waiting.discard(opened)

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None or connection.is_closed:
            return
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.add_on_close_callback(lambda *_: _give(closed, None))
        if not connection.is_closing:
            connection.close()
        await asyncio.wait([closed], timeout=0 if self.blocked else _CLOSING)
        if not closed.done():
            connection.abort()
            await closed

    async def _connected(self) -> Connection:
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> Connection:
        """Connect. Until that has worked once, say what was tried and what to do, and do not wait for long."""
        if not self._met and (reason := await unreachable([self._server])):
            raise TransportUnavailable(self.name, reason)
        try:
            connection = await (self._opened(_OPENING) if self._met else self._first_opened())
        except Unwelcome:
            raise
        except TransportUnavailable as error:
            if self._met or not (more := await misunderstood(self._server)):
                raise
            raise TransportUnavailable(self.name, more) from error
        self._met = True
        return connection

    async def _first_opened(self) -> Connection:
        """The first connection: soon, or a while later if what is there speaks as RabbitMQ does and is only slow."""
        try:
            return await self._opened(_FIRST)
        except Unwelcome:
            raise
        except TransportUnavailable:
            if not self._answered:
                raise
        return await self._opened(_OPENING)

    async def _opened(self, patience: float) -> Connection:
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Connection] = loop.create_future()
        self._parameters.stack_timeout = patience  # pika ends cleanly what it ends itself; ours is a net below it
        connection = Connection(
            self._parameters,
            loop,
            on_open_callback=lambda made: _give(opened, made),
            on_open_error_callback=lambda _, reason: _fail(opened, self._refused(reason)),
        )
        try:
            async with asyncio.timeout(patience + _NET):
                await opened
        except TransportUnavailable:
            self._answered = connection.answered
            raise
        except TimeoutError:
            self._answered = connection.answered
            _abandon(connection)
            raise TransportUnavailable(self.name, f"no answer within {patience:g} s") from None
        except asyncio.CancelledError:
            _abandon(connection)
            raise
        self.blocked = ""
        connection.add_on_close_callback(self._lost)
        connection.add_on_connection_blocked_callback(self._is_blocked)
        connection.add_on_connection_unblocked_callback(self._is_unblocked)
        return connection

    def _lost(self, _: Any, reason: BaseException) -> None:
        self.blocked = ""
        for opened in self._waiting:
            _fail(opened, TransportUnavailable(self.name, _why(reason)))

    def _is_blocked(self, _: Any, frame: Frame) -> None:
        reason = frame.method.reason
        self.blocked = reason.decode() if isinstance(reason, bytes) else str(reason)

    def _is_unblocked(self, *_: Any) -> None:
        self.blocked = ""

    def _refused(self, reason: BaseException | str) -> TransportUnavailable:
        if isinstance(reason, ProbableAuthenticationError | ProbableAccessDeniedError):
            return Unwelcome(
                self.name,
                f"it refuses this user, password or virtual host: correct user {self.user!r}, its password, or the "
                f"virtual host {self._parameters.virtual_host!r} in the URL",
            )
        return TransportUnavailable(self.name, _why(reason))


def _abandon(connection: Connection) -> None:
    """Close a connection that nobody waits for any more, so that it does not open later."""
    if not (connection.is_closing or connection.is_closed):
        connection.close()


def _give(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _why(reason: BaseException | str) -> str:
    """One line of an error that may hold several."""
    if isinstance(reason, ChannelClosedByBroker | ConnectionClosedByBroker):
        return str(reason.reply_text)
    found = getattr(reason, "exceptions", None)
    last = found[-1] if found else reason
    text = str(last) or type(last).__name__
    cause = getattr(reason, "__cause__", None)
    return (str(cause) if cause is not None and text.startswith("Amqp") else text).splitlines()[0][:300]
