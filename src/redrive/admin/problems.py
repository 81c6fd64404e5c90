"""Errors as answers: `{"error": …, "hint": …}`, with a status that a program can act on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from fastapi import FastAPI, Request, Response
from msgspec import Struct
from starlette.exceptions import HTTPException

from redrive.access.tokens import UnknownToken
from redrive.errors import (
    BadQuery,
    MessageTooLarge,
    NotFound,
    RedriveError,
    Unavailable,
    UnknownIncident,
    UnknownLetter,
    UnknownReplay,
    UnknownSource,
    UsageError,
)

_RETRY_AFTER = 5
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""What every answer says to a browser; a file of the console has a policy of its own."""
_SEE = "/openapi.json says what every route takes"


class Problem(Struct, frozen=True):
    """What went wrong, and what to do next."""

    error: str
    hint: str | None = None


class Refused(Exception):
    """Turned away at the door."""

    def __init__(self, status: int, error: str, hint: str, challenge: str) -> None:
        super().__init__(error)
        self.status = status
        self.hint = hint
        self.challenge = challenge


class Unreadable(BadQuery):
    """A parameter or a body that is not what the route takes."""

    def __init__(self, error: str, hint: str = _SEE, status: int = 422) -> None:
        super().__init__(error)
        self.hint = hint
        self.status = status


def problem(status: int, error: str, hint: str | None = None, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode(Problem(error, hint))
    return Response(body, status, headers=headers, media_type="application/json")


_ANSWERS: dict[type[RedriveError], tuple[int, str | None]] = {
    UnknownLetter: (404, "GET /api/letters lists them"),
    UnknownReplay: (404, "GET /api/replays lists them"),
    UnknownIncident: (404, "GET /api/incidents lists them"),
    UnknownToken: (404, None),
    UnknownSource: (422, "GET /api/sources lists them"),
    BadQuery: (422, _SEE),
    MessageTooLarge: (413, None),
    UsageError: (400, None),
    RedriveError: (400, None),
}


def answer_errors(api: FastAPI) -> None:
    """Every error leaves as a Problem."""
    for kind, (status, hint) in _ANSWERS.items():
        api.add_exception_handler(kind, _says(status, hint))
    api.add_exception_handler(NotFound, _not_found)
    api.add_exception_handler(Unreadable, _unreadable)
    api.add_exception_handler(Unavailable, _unavailable)
    api.add_exception_handler(Refused, _refused)
    api.add_exception_handler(HTTPException, _http)
    api.add_exception_handler(Exception, _bug)


def _says(status: int, hint: str | None) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handler(request: Request, error: Exception) -> Response:
        return problem(status, str(error), hint)

    return handler


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, NotFound)
    return problem(404, str(error), error.hint)


async def _unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, Unreadable)
    return problem(error.status, str(error), error.hint)


async def _unavailable(request: Request, error: Exception) -> Response:
    redactor = request.app.state.service.redactor
    headers = {"Retry-After": str(_RETRY_AFTER)}
    return problem(503, redactor.text(str(error)), f"nothing was lost; try again in {_RETRY_AFTER} s", headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return problem(error.status, str(error), error.hint, {"WWW-Authenticate": error.challenge})


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    asked = f"{request.method} {request.url.path}"
    text = {404: f"there is no {request.url.path}", 405: f"{asked} is not offered"}.get(error.status_code)
    return problem(error.status_code, text or str(error.detail), _SEE, dict(error.headers or {}))


async def _bug(request: Request, error: Exception) -> Response:
    hint = "please report it with the log's traceback"
    return problem(500, "this is a bug in Redrive; the server's log has it", hint, SAFE)  # no guard is around this one
