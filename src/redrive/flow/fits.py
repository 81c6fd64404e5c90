"""Whether a handler here could decode a message: asked before an edited one is kept, and before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from redrive.flow.context import Handler
from redrive.model import Message

Fits: TypeAlias = Callable[[Message], str | None]
"""Why a message would not decode; None if it would, or if nobody here knows."""


def fits(handlers: Mapping[str, Handler]) -> Fits:
    """Asks the handler of a message's source: its `decode=`, or its annotation."""

    def why_not(message: Message) -> str | None:
        handler = handlers.get(message.source)
        return None if handler is None else why_not_decoded(message, handler)

    return why_not


def why_not_decoded(message: Message, handler: Handler) -> str | None:
    """Why that handler could not decode the message; None if it can."""
    try:
        handler.decode(message.body, message) if handler.decode_wants_message else handler.decode(message.body)
    except Exception as error:
        said = str(error).strip().splitlines()
        return f"{handler.name or handler.source} cannot decode it: {type(error).__name__}: {said[0] if said else ''}"
    return None
