"""Whether any broker still answers, where the driver only says that a connection was lost.

It says once that all brokers are down, and not always (librdkafka 2.16 counts them while it learns of them): what was
said while messages that had come before were still taken in would be forgotten. A lost connection it says each time.

    a connection is lost ──▶ in doubt ──while nothing comes──▶ a broker is asked ──▶ it answers: no doubt
                                                  ▲                  └── nobody does: trouble; asked again later
                                                  └──────────────────────────┘
"""

from __future__ import annotations

import time
from typing import Any

from redrive.transports.kafka.driver import KafkaError, KafkaException, inner

_PATIENCE = 2.0  # seconds for the answer: meanwhile nothing is polled
_AGAIN = 1.0  # seconds until it is asked again


class Doubt:
    """That of one consumer; all of it happens in the thread that polls."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._is_there = False
        self._following = 0.0  # when a broker may be asked

    def arise(self) -> None:
        """A connection was lost, or could not be made."""
        self._is_there = True

    def trouble(self, consumer: Any) -> KafkaError | None:
        """Why nobody answers, if it is in doubt and nobody does. Called while nothing comes."""
        if not self._is_there or time.monotonic() < self._following:
            return None
        self._is_there = False  # what the driver says from now on is news
        try:
            consumer.list_topics(self._topic, timeout=_PATIENCE)
        except KafkaException as error:
            self._is_there, self._following = True, time.monotonic() + _AGAIN
            return inner(error)
        return None
