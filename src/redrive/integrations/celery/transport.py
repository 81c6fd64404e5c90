"""celery+amqp://… and celery+redis://…: publishes a letter's message as it was published first.

Behind `celery+` stands the broker URL of the app, as Celery reads it. Behind a `?` may stand options of its transport,
as in `broker_transport_options`: celery+redis://redis:6379/0?global_keyprefix=shop:
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from kombu import Connection
from kombu.exceptions import KombuError

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.integrations.celery.sending import Batch, send_confirmed, send_each
from redrive.integrations.celery.wire import Publication, published
from redrive.integrations.send_only import SendOnly
from redrive.model import Message
from redrive.transports.base import SendResult, refused
from redrive.untrusted import UNREADABLE

_PATIENCE = 10  # seconds that a broker may take to answer
_OPTIONS = ("global_keyprefix", "sep", "priority_steps", "master_name", "sentinel_kwargs", "body_encoding")


class CeleryTransport(SendOnly):
    """Publishes to the broker of Celery's workers."""

    name = "Celery"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self._options = read_url(url)
        self._connection: Any = None
        self._channel: Any = None

    def publish(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        made = [_publication(message) for message in messages]
        answers = iter(self._send([each for each in made if isinstance(each, Publication)]))
        return [next(answers) if isinstance(each, Publication) else each for each in made]

    def examine(self) -> None:
        connection = self._new_connection()
        try:
            connection.connect()
            connection.channel()
        except (*self._errors, *connection.connection_errors) as error:
            raise self._unavailable(error) from error
        finally:
            connection.release()

    def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            try:
                connection.release()
            except (*self._errors, *connection.connection_errors):
                connection.collect()

    def _send(self, publications: Sequence[Publication]) -> Sequence[SendResult]:
        if not publications:
            return ()
        batch = Batch(publications)
        channel = self._opened()
        try:
            send = send_confirmed if _is_native(self._connection) else send_each
            send(self._connection, channel, batch, _PATIENCE)
        except (*self._errors, *self._connection.connection_errors, *self._connection.channel_errors) as error:
            batch.fail(f"{self.name}: {_said(error)}")
            self.close()
        return batch.results

    def _opened(self) -> Any:
        """A channel that is known to work just now: what a restart of the broker has closed is opened again."""
        try:
            if self._channel is not None and not self._is_alive():
                self.close()
            if self._channel is None:
                self._connection = self._new_connection()
                self._connection.connect()
                self._channel = self._connection.channel()
                if _is_native(self._connection):
                    self._channel.confirm_select()
            return self._channel
        except (*self._errors, *self._connection.connection_errors, *self._connection.channel_errors) as error:
            self.close()
            raise self._unavailable(error) from error

    def _is_alive(self) -> bool:
        try:
            if not _is_native(self._connection):
                self._channel.client.ping()
                return True
            self._connection.drain_events(timeout=0.001)
        except TimeoutError:  # nothing was said, and nothing was closed
            return bool(self._channel.is_open)
        except (*self._errors, *self._connection.connection_errors, *self._connection.channel_errors):
            return False
        return bool(self._channel.is_open)

    def _new_connection(self) -> Any:
        return Connection(self._url, connect_timeout=_PATIENCE, transport_options=dict(self._options))

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        return (OSError, KombuError)

    def _unavailable(self, error: Exception) -> TransportUnavailable:
        return TransportUnavailable(self.name, f"its broker does not take messages: {_said(error)}")


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> CeleryTransport:
    """The transport of that URL. It connects when it is first used."""
    return CeleryTransport(url)


def read_url(url: str) -> tuple[str, dict[str, Any]]:
    """The URL as kombu wants it, and the options of its transport."""
    plain, _, query = url.removeprefix("celery+").partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    options = {name: _option(value) for name, value in pairs if name in _OPTIONS}
    rest = urlencode([(name, value) for name, value in pairs if name not in _OPTIONS])
    return f"{plain}?{rest}" if rest else plain, options


def _option(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


def _publication(message: Message) -> Publication | SendResult:
    try:
        return published(message)
    except ValueError as error:
        return refused(error)


def _is_native(connection: Any) -> bool:
    """Whether it is a broker that speaks AMQP; of all others kombu plays the broker itself."""
    return str(connection.transport.driver_type) == "amqp"


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
