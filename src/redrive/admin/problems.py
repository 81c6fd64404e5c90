"""Errors as answers: `{"error": …, "hint": …}`, with a status that a program can act on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap
from msgspec import Struct

from redrive.access.approvals import NeedsApproval
from redrive.access.tokens import UnknownToken
from redrive.errors import (
    BadQuery,
    ChangedMeanwhile,
    MessageTooLarge,
    NotAllowed,
    NotFound,
    NotInScope,
    NotReplayable,
    NoWayBack,
    RedriveError,
    ReplayExists,
    TooManyListeners,
    TooManyQuestions,
    Unavailable,
    UnknownGroup,
    UnknownIncident,
    UnknownLetter,
    UnknownReplay,
    UnknownSource,
    UsageError,
)

log = logging.getLogger("redrive")

MOST_BYTES = 1 << 20
"""The largest body that is read."""
MOST_EDITED = 100 << 20
"""The same of a request that edits a letter; the setting `body_limit` bounds the body itself."""
_RETRY_AFTER = 5
_LEFT = "client disconnected prematurely"  # Litestar's words, of a body that ends before its end
_TURN_AFTER = 1  # seconds; most costly questions have been answered by then
SEE = "/openapi.json says what every route takes"


class Problem(Struct, frozen=True):
    """What went wrong, and what to do next."""

    error: str
    hint: str | None = None
    kind: str | None = None  # the exception, where it is one of Redrive's: what a client in Python raises again


class Refused(HTTPException):
    """A request that is turned away before any route has read it."""

    def __init__(self, status: int, error: str, hint: str, challenge: str | None = None) -> None:
        headers = {"WWW-Authenticate": challenge} if challenge else None
        super().__init__(detail=error, status_code=status, headers=headers, extra={"hint": hint})


class Unreadable(BadQuery):
    """A parameter or a body that is not what the route takes."""

    def __init__(self, error: str, hint: str = SEE, status: int = 422) -> None:
        super().__init__(error)
        self.hint = hint
        self.status = status


def problem(
    status: int, error: str, hint: str | None = None, headers: dict[str, str] | None = None, kind: str | None = None
) -> Response[bytes]:
    body = msgspec.json.encode(Problem(error, hint, kind))
    return Response(body, status_code=status, headers=headers, media_type="application/json")


_ANSWERS: dict[type[RedriveError], tuple[int, str | None]] = {
    NotAllowed: (403, None),
    TooManyListeners: (429, "close a page, or ask now and then instead: GET /api/stats"),
    UnknownGroup: (404, "GET /api/groups lists them"),
    UnknownLetter: (404, "GET /api/letters lists them"),
    UnknownReplay: (404, "GET /api/replays lists them"),
    ReplayExists: (409, "GET /api/replays/ID shows what it selected"),
    UnknownIncident: (404, "GET /api/incidents lists them"),
    UnknownToken: (404, None),
    NotReplayable: (409, None),
    NoWayBack: (422, "GET /readyz names the transports of this server"),
    UnknownSource: (422, "GET /api/sources lists them"),
    BadQuery: (422, SEE),
    ChangedMeanwhile: (409, "GET /api/letters/{id} says how it is now"),
    MessageTooLarge: (413, None),
    NotInScope: (403, "GET /api/me says what you reach"),
    UsageError: (400, None),
    RedriveError: (400, None),
}


def error_answers() -> ExceptionHandlersMap:
    """Every error leaves as a Problem."""
    return {
        **{kind: _says(status, hint) for kind, (status, hint) in _ANSWERS.items()},
        NotFound: _not_found,
        NeedsApproval: _waits,
        Unreadable: _unreadable,
        Unavailable: _unavailable,
        TooManyQuestions: _busy,
        HTTPException: _http,
        Exception: _bug,
    }


def _says(status: int, hint: str | None) -> Callable[[Request[Any, Any, Any], Exception], Response[bytes]]:
    return lambda request, error: problem(status, str(error), hint, kind=type(error).__name__)


def _not_found(request: Request[Any, Any, Any], error: NotFound) -> Response[bytes]:
    return problem(404, str(error), error.hint, kind="NotFound")


def _waits(request: Request[Any, Any, Any], error: NeedsApproval) -> Response[bytes]:
    """Accepted, and not done yet: the approval says who has to do what."""
    body = msgspec.json.encode({"approval": error.approval, "detail": str(error)})
    return Response(body, status_code=202, media_type="application/json")


def _unreadable(request: Request[Any, Any, Any], error: Unreadable) -> Response[bytes]:
    return problem(error.status, str(error), error.hint, kind="BadQuery")


def _unavailable(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    redactor = request.app.state.redactor
    headers = {"Retry-After": str(_RETRY_AFTER)}
    text, hint = redactor.text(str(error)), f"nothing was lost; try again in {_RETRY_AFTER} s"
    return problem(503, text, hint, headers, kind=type(error).__name__)


def _busy(request: Request[Any, Any, Any], error: TooManyQuestions) -> Response[bytes]:
    hint = (
        f"nothing was begun; try again in {_TURN_AFTER} s, ask one after the other, or for less: a shorter time, "
        "a filter instead of a text"
    )
    return problem(429, str(error), hint, {"Retry-After": str(_TURN_AFTER)}, kind="TooManyQuestions")


def _http(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    headers = dict(error.headers or {})
    hint = error.extra.get("hint", SEE) if isinstance(error.extra, dict) else SEE
    match error.status_code:
        case 404:
            return problem(404, f"there is no {request.url.path}", hint)
        case 405:
            offered = sorted({*headers.get("allow", "").split(", ")} - {"OPTIONS"})  # which access.py refuses
            text = f"{request.method} {request.url.path} is not offered"
            return problem(405, text, hint, {"Allow": ", ".join(offered)})
        case 413:
            edits = request.url.path.endswith("/edit")
            hint = "`redrive edit ID --body FILE` takes larger ones" if edits else "select with a query instead"
            return problem(413, f"the body has more than {MOST_EDITED if edits else MOST_BYTES:,} bytes", hint)
        case status if status >= 500 and error.detail == _LEFT:
            return problem(400, "the body was broken off", "send it again; nothing was begun")  # to nobody, as a rule
        case status if status >= 500:
            return _bug(request, error)
    return problem(error.status_code, error.detail, hint, headers)


def _bug(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(
        500, "this is a bug in Redrive; the server's log has it", "please report it with the log's traceback"
    )
