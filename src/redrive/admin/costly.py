"""A bound on costly questions at once, so that who asks fifty of them stalls nobody else.

A route is cheap unless it says `costly=True`, or `costly=` with a function that says of a request whether it is:
`@get("/letters", role=Role.VIEWER, costly=has_text)`. A question that finds no place is answered 429 at once, and has
begun nothing: it can be asked again.

    admin.costly_per_login  of one token or person, in this process
    admin.costly            of everybody, in this process
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from redrive.access.actors import Actor
from redrive.admin.callers import Connection
from redrive.config.durations import duration
from redrive.config.settings import Admin
from redrive.errors import ConfigError, TooManyQuestions

Cost: TypeAlias = bool | Callable[[Connection], bool]
_MONTH = timedelta(days=30)
_TURN = "redrive.turn"
_MOST = "and that is the most at once; ask again when one of them is"


class Turns:
    """Counts the costly questions that are being answered."""

    def __init__(self, limits: Admin) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()

    def begin(self, login: str) -> Callable[[], None]:
        """Take a place, or raise TooManyQuestions; call what is returned when the question is answered."""
        most, of_all = self._limits.costly_per_login, self._limits.costly
        if self._running[login] >= most:
            raise TooManyQuestions(f"costly questions of yours that are being answered: {most}, {_MOST}")
        if self._running.total() >= of_all:
            raise TooManyQuestions(f"costly questions that are being answered: {of_all}, {_MOST}")
        self._running[login] += 1
        return lambda: self._end(login)

    def _end(self, login: str) -> None:
        self._running[login] -= 1
        if not self._running[login]:
            del self._running[login]


async def take_turn(connection: Connection, handler: BaseRouteHandler) -> None:
    """Let a costly question in if there is a place for it. `gives_back_turns` ends it."""
    costly: Cost = handler.opt.get("costly", False)
    if costly is True or (callable(costly) and costly(connection)):
        actor: Actor | None = connection.scope.get("auth")
        login = "" if actor is None else f"{actor.via} {actor.id or actor.name}"
        turns: Turns = connection.app.state.turns
        connection.scope[_TURN] = turns.begin(login)  # type: ignore[literal-required]


def gives_back_turns(app: ASGIApp) -> ASGIApp:
    """The app, after each of whose answers, whole or broken off, there is a place again."""

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            end: Callable[[], None] | None = scope.pop(_TURN, None)  # type: ignore[misc]
            if end is not None:
                end()

    return answering


def has_text(connection: Connection) -> bool:
    """It looks for a text."""
    return bool(connection.query_params.get("text"))


def is_long(connection: Connection) -> bool:
    """It asks for more than 30 days. What cannot be read is cheap: the route refuses it."""
    asked = connection.query_params
    try:
        if (last := asked.get("last")) is not None:
            return duration(last) > _MONTH
        since, until = (_moment(asked.get(name)) for name in ("since", "until"))
        return since is not None and (until or datetime.now(UTC)) - since > _MONTH
    except (ConfigError, ValueError, TypeError, OverflowError):
        return False


def is_filtered(connection: Connection) -> bool:
    """It looks through the trail for some acts."""
    return any(connection.query_params.get(name) for name in ("actor_has", "action", "about", "outcome", "since"))


def has_text_or_is_long(connection: Connection) -> bool:
    return has_text(connection) or is_long(connection)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
