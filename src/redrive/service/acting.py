"""Every act is in the trail before it is done: a line says that it began, another what became of it.

Who is killed between the two leaves the first, which is shown as `began`: its outcome is not known.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

import msgspec

from redrive.access.actors import Actor
from redrive.access.approvals import NeedsApproval
from redrive.access.trail import Phase
from redrive.errors import RedriveError, Unavailable
from redrive.forensics.query import Query
from redrive.model import Letter

if TYPE_CHECKING:
    from redrive.service.asking import Asking

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
Method: TypeAlias = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


class Act:
    """An act that has begun, and whether its outcome is written."""

    def __init__(self, action: str, seq: int, about: tuple[str, ...], reason: str) -> None:
        self.action = action
        self.seq = seq
        self.about = about
        self.reason = reason
        self.is_told = False


current: ContextVar[Act | None] = ContextVar("redrive_act", default=None)
"""The act that this task is in: a note of the same action is its outcome."""


def acts(action: str, *, even_unwritten: bool = False) -> Callable[[Method[S, P, T]], Method[S, P, T]]:
    """A method that does something: written down before it is called, and what became of it after that.

    The method takes `actor`, and is of a service or of what has one as `_asking`, or takes a service first.

    even_unwritten   it is done all the same while the store, which has the trail, is away: what works on a broker alone
    """

    def decorate(method: Method[S, P, T]) -> Method[S, P, T]:
        signature = inspect.signature(method)

        @wraps(method)
        async def acting(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            asking: Asking = getattr(self, "_asking", None) or cast("Asking", self)
            given = signature.bind(self, *args, **kwargs).arguments
            actor: Actor = given["actor"]
            about, detail, reason = said_of(given)
            try:
                seq = await asking.write(actor, action, Phase.BEGAN, detail, reason=reason, about=about)
            except Unavailable as error:
                if not even_unwritten:
                    raise
                log.warning("%s by %s is in no trail: %s", action, actor, error)
                return await method(self, *args, **kwargs)
            act = Act(action, seq, about, reason)
            token = current.set(act)
            try:
                result = await method(self, *args, **kwargs)
            except asyncio.CancelledError:
                await _end(asking, act, actor, Phase.INTERRUPTED, detail)
                raise
            except NeedsApproval as error:
                about_it = (error.approval.id, *act.about)
                act = Act(action, seq, about_it, reason or error.approval.reason)
                await _end(asking, act, actor, Phase.WAITS, str(error))
                raise
            except Unavailable as error:
                await _end(asking, act, actor, Phase.FAILED, str(error))
                raise
            except RedriveError as error:
                await _end(asking, act, actor, Phase.REFUSED, str(error))
                raise
            except Exception as error:
                await _end(asking, act, actor, Phase.FAILED, f"{type(error).__name__}: {error}")
                raise
            finally:
                current.reset(token)
            await _end(asking, act, actor, Phase.DONE, detail)
            return result

        return acting

    return decorate


async def _end(asking: Asking, act: Act, actor: Actor, outcome: Phase, detail: str) -> None:
    """Write what became of it, unless the act itself did."""
    if act.is_told:
        return
    act.is_told = True
    try:
        await asking.write(actor, act.action, outcome, detail, reason=act.reason, about=act.about, of=act.seq)
    except Unavailable:
        if outcome is Phase.DONE:  # of an act that is done its caller may know so
            raise


def said_of(given: Mapping[str, Any]) -> tuple[tuple[str, ...], str, str]:
    """What an act is about, what it was asked to do, and why, as its arguments have it."""
    about: list[str] = []
    words: list[str] = []
    for name in ("id", "letter", "ids", "letters"):
        value = given.get(name)
        if isinstance(value, str):
            about.append(value)
        elif isinstance(value, Letter):
            about.append(value.id)
        elif isinstance(value, (list, tuple)):
            about += [str(getattr(each, "id", each)) for each in value]
    query = given.get("query")
    if isinstance(query, Query):
        about += (query.ids or ())[:50]
        words.append(msgspec.json.encode(query).decode())
    named = (given.get(name) for name in ("name", "source", "group", "script", "queue"))
    words += [value for value in named if isinstance(value, str)]
    reason = given.get("reason") or given.get("why") or ""
    return tuple(about), " ".join([*about[:3], *words]), reason if isinstance(reason, str) else ""
