"""Pure: what an error is that another program had, by what it wrote down: a type, a message, a stack trace.

Of an exception and its causes the innermost that says something decides: others only passed it on. By what it says, the
surer first: the name of its type, a code, its words. A name that is used for everything (`IllegalArgumentException`)
gives way to what surrounds it, and so do words that only say that something is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from redrive.flow.codes import PERMANENT, PERMISSION, RESOURCE, TRANSIENT, VALIDATION, Code, Family, category_of
from redrive.flow.texts import bounded, category_in, category_named, code_in, types_in
from redrive.flow.type_names import Named, read_name
from redrive.forensics.fingerprint import FOREIGN
from redrive.forensics.stacks import Stack, read_stack
from redrive.model import Category

_FINAL = (PERMISSION, VALIDATION, PERMANENT)
_MOST_LINKS = 50
_NUMBER = re.compile(r"\b\d+\b")
_CODED = re.compile(r"(?<!\d)(?:[45]\d\d|9|137)(?!\d)|\d\.\d|[Ee]rrno|os error|sql|SQL|ERROR")
"""Where a number may be a code, or stands by the name of one."""
_RELAY = re.compile(r"relay|authenticat|authori[sz]|credential", re.IGNORECASE)


class Reading(Struct, frozen=True):
    """What is known of a foreign error. Without a category nothing says what kind of trouble it is."""

    category: Category | None = None
    code: str | None = None
    cause: str = ""
    """The type of the root cause, where a stack trace names it."""
    frames: tuple[str, ...] = ()
    """Where it was thrown, innermost last; and the root cause, if it is of another type."""


def read_foreign(kind: str, text: str, stack: str = "") -> Reading:
    """What a type, a message and a stack trace say together. Any of them may be empty, or be anything."""
    trace = read_stack(stack) or read_stack(text)
    links = [(raised.type, raised.message) for raised in trace.chain][-_MOST_LINKS:] if trace else []
    told = _told(kind, text, links)
    category, code = _judged([*told, *links])
    if trace is not None and trace.members:
        category, code = _of_members(trace, category, code)
    cause = trace.root.type if trace else ""
    return Reading(category, code, cause, _frames(kind, cause, trace))


def read_text(text: str) -> tuple[Category | None, str | None]:
    """The category and the code that a text alone gives."""
    text = bounded(text)
    return _read(text if _CODED.search(text) else _NUMBER.sub("0", text))


@lru_cache(maxsize=1024)
def _read(text: str) -> tuple[Category | None, str | None]:
    """Cached: the same trouble says the same again and again, but for a number that is only a name."""
    return _judged([("", text)])


def _told(kind: str, text: str, links: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """What the record itself says, where its trace does not say it too."""
    known = any(kind == type and (not text or text.startswith(message[:200])) for type, message in links)
    return [] if known else [(kind, text)]


def _of_members(trace: Stack, category: Category | None, code: str | None) -> tuple[Category | None, str | None]:
    """Of a group, a final member first: while one of them cannot succeed, the whole cannot."""
    found = [_judged([(raised.type, raised.message) for raised in member.chain]) for member in trace.members[:8]]
    known = [(kind, value) for kind, value in found if kind is not None]
    return min(known, key=lambda pair: pair[0] not in _FINAL, default=(category, code))


def _frames(kind: str, cause: str, trace: Stack | None) -> tuple[str, ...]:
    site = trace.site() if trace else ()
    if not site:
        return ()
    caused = (f"caused by {cause}",) if cause and cause != kind else ()
    return (*(f"{FOREIGN}{name}" for name in site), *caused)


def _judged(links: Iterable[tuple[str, str]]) -> tuple[Category | None, str | None]:
    spare: Category | None = None
    for kind, text in reversed(_opened(links)):
        named = read_name(kind) if kind else None
        category, code = _sure(named, text)
        if category is not None:
            return category, code
        general = _general(named, text)
        if general is None or spare is not None:
            continue
        if named is None and general not in (VALIDATION, PERMANENT):
            return general, None
        spare = general
    return spare, None


def _general(named: Named | None, text: str) -> Category | None:
    """What a general name says, or else the words. One that only says that it may pass lets the words say why."""
    said = category_in(text) if text and (named is None or named.category not in _FINAL) else None
    return said or (named.category if named else None)


def _opened(links: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each type with its text; those that a text begins with are links of their own."""
    opened: list[tuple[str, str]] = []
    for kind, text in links:
        kinds, rest = types_in(text) if text else ([], "")
        names = [name for name in (kind, *kinds) if name]
        opened += ((name, "") for name in names[:-1])
        opened.append((names[-1] if names else "", rest if kinds else text))
    return opened


def _sure(named: Named | None, text: str) -> tuple[Category | None, str | None]:
    """What a type that is not general says, or a code in the text. The code is told in either case."""
    code = code_in(text) if text else None
    value = code.value if code else None
    if named is not None and not named.general:
        return named.category, value
    if code is not None:
        return _of_code(code, text), value
    return (category_named(text) if text else None), None


def _of_code(code: Code, text: str) -> Category | None:
    """What a code says, unless the words beside it say more exactly what it stands for there."""
    category, said = category_of(code), category_in(text)
    if code.family is Family.SMTP and category is PERMANENT and _RELAY.search(text):
        return PERMISSION  # 550 is also what a server says that will not relay
    if code.family is Family.HTTP and code.value in ("400", "403") and said in (TRANSIENT, RESOURCE):
        return said  # how some say that a rate or a quota is used up
    if code.value == "UNKNOWN" and said is not None:
        return said
    return category
