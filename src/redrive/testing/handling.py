"""For tests of handlers: one message through a handler, as a worker would hand it over."""

from __future__ import annotations

import asyncio

from redrive.debugging.handlers import find_handler
from redrive.debugging.isolation import isolated
from redrive.debugging.trying import handled
from redrive.model import Message


def handle(target: str, message: Message) -> list[Message]:
    """Hand a message to the handler of `shop:charge`: decoded by its annotation, inside its `around`. What it raises is
    raised. Returns what it sent through its app, which went nowhere."""
    with isolated() as isolation:
        found = find_handler(target, message.source)
        with found.app.in_this_thread():
            asyncio.run(handled(found, message))
        return list(isolation.sent)
