"""Whose a dead message is: its topic, a header or its value says it, and the reader of that system reads it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime

from redrive.collect.collector import Reader
from redrive.model import Letter, Message
from redrive.systems.base import Format, resolved
from redrive.transports.base import Delivery


def opened(format: Format, topic: str, transport: str | None, source: str | None) -> Reader:
    """The reader of that form, for one topic or queue."""
    reader: Reader = resolved(format.reader)(topic, transport=transport or format.transport, source=source)
    return reader


def by_topic(formats: Iterable[Format], topic: str) -> Format | None:
    """The form of everything in that topic or queue, if its name says it."""
    return next((format for format in formats if format.topic and re.fullmatch(format.topic, topic)), None)


def mixed(formats: Iterable[Format], plain: Reader, topic: str, transport: str | None, source: str | None) -> Reader:
    """A reader that has each message read by whose it is; `plain` reads what is nobody's."""
    formats = tuple(formats)
    readers: dict[str, Reader] = {}

    def read(delivery: Delivery, now: datetime) -> Letter | None:
        format = _format_of(delivery.message, formats)
        if format is None:
            return plain(delivery, now)
        if format.name not in readers:
            readers[format.name] = opened(format, topic, transport, source)
        return readers[format.name](delivery, now)

    return read


def _format_of(message: Message, formats: Collection[Format]) -> Format | None:
    for format in formats:
        if format.header is not None and message.header(format.header[0]) == format.header[1]:
            return format
    return next((format for format in formats if format.value and format.value in message.body), None)
