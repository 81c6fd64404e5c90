"""What a server answers, as the errors that a store would have raised: the same classes with the same text."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from redrive import errors
from redrive.access.approvals import Approval, NeedsApproval
from redrive.access.tokens import UnknownToken
from redrive.errors import NotAllowed, RedriveError, Unavailable, UsageError
from redrive.forensics.jsonpatch import PatchRefused
from redrive.untrusted import UNREADABLE, read_json

_KNOWN: dict[str, type[RedriveError]] = {
    **{
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, RedriveError) and not issubclass(kind, errors.HandlerError)
    },
    "PatchRefused": PatchRefused,
    "UnknownToken": UnknownToken,
}
_OF_A_PROXY = (502, 503, 504)  # which tells whoever asks that the server behind it does not answer


class NotLoggedIn(UsageError):
    """The server does not know who asks."""


class Said(Struct, frozen=True):
    """A problem, as a server tells it."""

    error: str
    hint: str | None = None
    kind: str | None = None


class Waits(Struct, frozen=True):
    """An act that was accepted, and waits for a second person."""

    approval: Approval


def error_of(status: int, body: bytes, server: str) -> RedriveError:
    """The error that an answer stands for."""
    try:
        said = read_json(body, Said)
    except UNREADABLE:
        if status in _OF_A_PROXY:
            return Unavailable(server, f"what stands before it answers {status}")
        return UsageError(f"{server} answers {status}, and not as a Redrive server does: is it the address of one?")
    hint = f"\n{said.hint}" if said.hint else ""
    if status == 401:
        return NotLoggedIn(f"{server} does not let you in: {said.error}\n`redrive login` gets a token that it knows")
    kind = _KNOWN.get(said.kind or "")
    if kind is not None:
        return _made(kind, said.error)
    if status == 403:
        return NotAllowed(f"{said.error}{hint}")
    if status >= 500:
        return Unavailable(server, f"it answers {status}: {said.error}")
    return UsageError(f"{said.error}{hint}")


def approval_in(body: bytes) -> NeedsApproval | None:
    """The act that waits for a second person, if that is what was answered."""
    try:
        return NeedsApproval(msgspec.json.decode(body, type=Waits).approval)
    except UNREADABLE:
        return None


def _made(kind: type[RedriveError], text: str) -> RedriveError:
    """An error with the text that it had: what it was made of stayed where it was raised."""
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    if isinstance(error, Unavailable):
        error.name, _, error.why = text.partition(" is unavailable: ")
    return error
