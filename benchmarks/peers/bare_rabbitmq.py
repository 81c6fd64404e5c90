"""pika's SelectConnection with nothing around it: 1,000 confirms in flight, acks of fifty at once."""

from __future__ import annotations

import time
from typing import Any

import pika

_IN_FLIGHT, _ACKED_AT_ONCE, _PREFETCH = 1000, 50, 200


def publish(url: str, queue: str, body: bytes, total: int) -> float:
    """Messages a second, until the last is confirmed."""
    return total / _Publishing(url, queue, body, total).run()


def consume(url: str, queue: str, total: int) -> float:
    """Messages a second, until the last ack is sent. Whoever has no handler is hard to beat."""
    return total / _Consuming(url, queue, total).run()


class _Client:
    def __init__(self, url: str, queue: str, total: int) -> None:
        self.queue, self.total = queue, total
        self.began = self.took = 0.0
        self.connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )

    def run(self) -> float:
        self.connection.ioloop.start()
        return self.took

    def _opened(self, channel: Any) -> None:
        self.channel = channel
        self.began = time.perf_counter()
        self.start()

    def start(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.took = time.perf_counter() - self.began
        self.connection.close()


class _Publishing(_Client):
    def __init__(self, url: str, queue: str, body: bytes, total: int) -> None:
        super().__init__(url, queue, total)
        self.body = body
        self.sent = self.confirmed = 0
        self.properties = pika.BasicProperties(delivery_mode=2, message_id="m")

    def start(self) -> None:
        self.channel.confirm_delivery(self._confirmed, callback=lambda _: self._fill())

    def _fill(self) -> None:
        while self.sent < self.total and self.sent - self.confirmed < _IN_FLIGHT:
            self.channel.basic_publish("", self.queue, self.body, self.properties, mandatory=True)
            self.sent += 1

    def _confirmed(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        self.confirmed = max(self.confirmed, tag)
        if self.confirmed >= self.total:
            return self.end()
        if self.sent - self.confirmed < _IN_FLIGHT // 2:
            self._fill()
        return None


class _Consuming(_Client):
    seen = 0

    def start(self) -> None:
        self.channel.basic_qos(prefetch_count=_PREFETCH)
        self.channel.basic_consume(self.queue, self._came)

    def _came(self, channel: Any, method: Any, _: Any, __: bytes) -> None:
        self.seen += 1
        if self.seen % _ACKED_AT_ONCE == 0 or self.seen == self.total:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if self.seen == self.total:
            self.end()
