"""Pure: error -> Verdict. Every error gets one, whatever it carries; nothing here raises.

The first of these that has an answer gives it, the more specific before the more general:

    1. the user's rules, in the order they were registered
    2. what the handler said on purpose (`Permanent`, `Transient`)
    3. a type that says everything (a body that does not decode, a bug, no memory left)
    4. a code (SMTP, HTTP, gRPC, AWS): an SMTP error is an OSError too, and its 550 says more than that
    5. a general type (TimeoutError, ConnectionError, OSError by its errno, ValueError, …)
    6. text, as a last resort: the words of the type's name, then those of the message
    7. the same for what caused it (`raise … from`, a group's members, then the implicit context)
    8. the fallback

An implicit context is only where an error happened, so it may make the error retryable but never final.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive import errors
from redrive.flow.codes import (
    NETWORK,
    PERMANENT,
    PERMISSION,
    RESOURCE,
    TRANSIENT,
    VALIDATION,
    Code,
    Family,
    category_of,
    find_code,
    parse_code,
    read,
    said,
)
from redrive.flow.foreign import read_text
from redrive.flow.texts import speaks_of_absence
from redrive.flow.type_names import Named, read_name
from redrive.model import Category


class Verdict(Struct, frozen=True):
    """What kind of trouble an error is, and whether trying again can help."""

    category: Category
    retryable: bool
    code: str | None = None


Rule: TypeAlias = Callable[[BaseException], Verdict | Category | None]
"""A user's own say: a Verdict, a Category (retryable as that category is), or None for no opinion."""
RuleT = TypeVar("RuleT", bound=Rule)

RETRYABLE = frozenset({TRANSIENT, NETWORK, RESOURCE})
"""The categories that may pass by themselves."""

_Types: TypeAlias = tuple[tuple[tuple[type[BaseException], ...], Category], ...]
_SPECIFIC: _Types = (
    ((SystemExit,), PERMANENT),
    ((MemoryError,), RESOURCE),
    ((RecursionError,), PERMANENT),  # the same input goes as deep again
    ((msgspec.MsgspecError, UnicodeError), VALIDATION),
    ((NameError, NotImplementedError, ImportError, SyntaxError), PERMANENT),
    ((asyncio.CancelledError, KeyboardInterrupt, GeneratorExit), TRANSIENT),  # stopped from outside
    ((errors.Unavailable,), NETWORK),
    ((errors.UsageError, errors.ConfigError, errors.MissingExtra), PERMANENT),
)
_GENERAL: _Types = (
    ((BlockingIOError, InterruptedError), TRANSIENT),
    ((TimeoutError, ConnectionError, EOFError), NETWORK),
    # before ValueError and errno: a certificate error is a ValueError, and these have numbers of their own
    ((socket.gaierror, socket.herror, ssl.SSLError), NETWORK),
    ((PermissionError,), PERMISSION),
    ((ValueError, KeyError, IndexError), VALIDATION),
    ((TypeError, AttributeError), PERMANENT),
)
_ERRNO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM), RESOURCE),
    **dict.fromkeys((errno.ETIMEDOUT, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN), NETWORK),
    **dict.fromkeys((errno.ENETRESET, errno.EHOSTDOWN, errno.EADDRNOTAVAIL), NETWORK),
    **dict.fromkeys((errno.EACCES, errno.EPERM), PERMISSION),
    **dict.fromkeys((errno.EBUSY, errno.EDEADLK, errno.ESTALE), TRANSIENT),
}
_NAMES: dict[tuple[str, str], Category] = {
    ("pydantic", "ValidationError"): VALIDATION,
    ("pydantic_core", "ValidationError"): VALIDATION,
    ("jsonschema", "ValidationError"): VALIDATION,
    ("marshmallow", "ValidationError"): VALIDATION,
    ("google", "DecodeError"): VALIDATION,  # protobuf
    ("botocore", "NoCredentialsError"): PERMISSION,
}
"""Types of libraries we do not import, by the first part of their module and their name."""

_MOST_LINKS = 8


class Classifier:
    """Total: every error gets a verdict, and a rule that raises only loses its say."""

    def __init__(self, rules: Sequence[Rule] = (), fallback: Category = Category.TRANSIENT) -> None:
        self._rules = list(rules)
        self._fallback = fallback

    def register(self, rule: RuleT) -> RuleT:
        """Ask this rule too, after those already there. Returns it, so it can decorate a function."""
        self._rules.append(rule)
        return rule

    def on(self, *types: type[BaseException], category: Category, retryable: bool | None = None) -> None:
        """Errors of these types are of that category; retryable as the category is, unless said otherwise."""
        verdict = Verdict(category, category in RETRYABLE if retryable is None else retryable)
        self.register(lambda error: verdict if isinstance(error, types) else None)

    def __call__(self, error: BaseException) -> Verdict:
        verdict = None if self._rules else _quietly(_said_outright, error)
        if verdict is not None:
            return verdict
        own = _quietly(find_code, error)
        for link, certain in _links(error):
            code = own if link is error else _quietly(find_code, link)
            verdict = self._judge(link, code) or self._judge_members(link)
            if verdict is not None and (certain or verdict.retryable):
                return verdict
        return _verdict(self._fallback, own.value if own else None)

    def _judge(self, error: BaseException, code: Code | None) -> Verdict | None:
        answers = (_read_answer(_quietly(rule, error)) for rule in self._rules)
        steps = (_quietly(step, error, code) for step in _STEPS)
        found = next((verdict for verdict in chain(answers, steps) if verdict is not None), None)
        return None if found is None else _with_code(found, code)

    def _judge_members(self, error: BaseException) -> Verdict | None:
        """Of a group, a final member first: while one of them cannot succeed, the whole cannot."""
        members = _quietly(_members, error) or ()
        verdicts = (self._judge(member, _quietly(find_code, member)) for member in members)
        return min((verdict for verdict in verdicts if verdict), key=lambda verdict: verdict.retryable, default=None)


def classify_code(code: str | int, family: Family | str | None = None) -> Verdict | None:
    """What a code alone says, None where nobody knows it. A bare number is HTTP unless a family is given."""
    return _by_code(None, parse_code(code, Family(family) if family else None))


def classify_text(text: str) -> Verdict | None:
    """What a message alone says: the code it names, else its words; None where it says nothing."""
    category, code = read_text(text)
    return _verdict(category, code) if category else None


def _verdict(category: Category, code: str | None = None) -> Verdict:
    return Verdict(category, category in RETRYABLE, code)


def _with_code(verdict: Verdict, code: Code | None) -> Verdict:
    return replace(verdict, code=code.value) if code is not None and verdict.code is None else verdict


def _read_answer(answer: object) -> Verdict | None:
    if isinstance(answer, Category):
        return _verdict(answer)
    return answer if isinstance(answer, Verdict) else None


ResultT = TypeVar("ResultT")


def _said_outright(error: BaseException) -> Verdict | None:
    """The verdict that a handler gave with a code of its own: nothing else is looked for."""
    if isinstance(error, errors.HandlerError) and error.code is not None:
        return _on_purpose(error, None)
    return None


def _quietly(step: Callable[..., ResultT], *args: object) -> ResultT | None:
    """Its answer, or None if it raises: a hostile error or a broken rule must not cost us the message."""
    try:
        return step(*args)
    except Exception:
        return None


def _links(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """The error, then what led to it, and whether that surely is why. Bounded, so a loop of causes ends."""
    certain = True
    for _ in range(_MOST_LINKS):
        yield error, certain
        following = _quietly(_cause, error) or _quietly(_context, error)
        if following is None:
            return
        error, explicit = following
        certain = certain and explicit


def _cause(error: BaseException) -> tuple[BaseException, bool] | None:
    return (error.__cause__, True) if isinstance(error.__cause__, BaseException) else None


def _context(error: BaseException) -> tuple[BaseException, bool] | None:
    hidden = error.__suppress_context__ or not isinstance(error.__context__, BaseException)
    return None if hidden or error.__context__ is None else (error.__context__, False)


def _members(error: BaseException) -> list[BaseException]:
    """The errors inside a group, groups within it opened; the first few of them."""
    waiting, found = [error], list[BaseException]()
    for _ in range(_MOST_LINKS * 2):
        if not waiting:
            break
        inner = read(waiting.pop(0), "exceptions")
        members = [member for member in inner if isinstance(member, BaseException)] if isinstance(inner, tuple) else []
        waiting += (member for member in members if isinstance(member, BaseExceptionGroup))
        found += (member for member in members if not isinstance(member, BaseExceptionGroup))
    return found[:_MOST_LINKS]


def _on_purpose(error: BaseException, code: Code | None) -> Verdict | None:
    if not isinstance(error, errors.HandlerError):
        return None
    known = parse_code(error.code)
    given = None if error.code is None else str(error.code)
    return Verdict(Category(error.category), bool(error.retryable), known.value if known else given)


def _by_specific_type(error: BaseException, code: Code | None) -> Verdict | None:
    kind: type = type(error)
    category = _of_type(error, _SPECIFIC) or _foreign(kind)
    return _verdict(category) if category else None


def _by_code(error: BaseException | None, code: Code | None) -> Verdict | None:
    category = category_of(code) if code is not None else None
    return _verdict(category, code.value) if code and category else None


def _by_general_type(error: BaseException, code: Code | None) -> Verdict | None:
    number = error.errno if isinstance(error, OSError) else None
    category = _of_type(error, _GENERAL) or (_ERRNO.get(number) if number is not None else None)
    return _verdict(category) if category else None


def _by_words(error: BaseException, code: Code | None) -> Verdict | None:
    """What the type is called, or else what it says. A name that only says that it may pass lets the text say why."""
    kind: type = type(error)
    named = _named(kind)
    if named is not None and not named.general:
        return _verdict(named.category)
    return _by_text(said(error)) or (_verdict(named.category) if named is not None else None)


def _by_text(text: str) -> Verdict | None:
    """What a text says. That something is not there is not final: it may come yet."""
    verdict = classify_text(text)
    kept = verdict is None or verdict.category is not PERMANENT or verdict.code is not None
    return verdict if kept or not speaks_of_absence(text) else None


def _of_type(error: BaseException, table: _Types) -> Category | None:
    return next((category for types, category in table if isinstance(error, types)), None)


@lru_cache(maxsize=1024)
def _foreign(kind: type) -> Category | None:
    names = ((str(base.__module__).partition(".")[0], base.__name__) for base in kind.__mro__)
    return next((_NAMES[name] for name in names if name in _NAMES), None)


@lru_cache(maxsize=1024)
def _named(kind: type) -> Named | None:
    """What the names of the type and its bases say; Python's own are in the tables above."""
    bases = (f"{base.__module__}.{base.__name__}" for base in kind.__mro__ if base.__module__ != "builtins")
    names = [named for base in bases if (named := read_name(base)) is not None]
    sure = (named for named in names if not named.general)
    return next(sure, None) or next((named for named in names if named.category in RETRYABLE), None)


_STEPS = (_on_purpose, _by_specific_type, _by_code, _by_general_type, _by_words)
