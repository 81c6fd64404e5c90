"""What differs among the letters of a group: fields whose value many of them have, and few others of their sources.

Pure, and over what is shown of letters only: a value that is masked tells nothing here either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

from msgspec import Struct

from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import MASK
from redrive.model import Letter
from redrive.untrusted import UNREADABLE, read_json

Fact: TypeAlias = tuple[str, str]
"""A field and its value, as both are shown."""
_FIELDS = 200  # of one letter
_DEEPEST = 4
_LONGEST = 80  # characters of a value: what is longer is no kind of letter, but a text
_OURS = "redrive-"
_LEAST_SHARE, _LEAST_LETTERS, _TIMES = 0.3, 3, 2.0
_SHOWN = 12


class Difference(Struct, frozen=True):
    """A field, a value, and the share of letters that have it: of the group, and of others of its sources."""

    field: str
    value: str
    here: float
    elsewhere: float


class Differences(Struct, frozen=True):
    """How many letters were looked at, of the group and of others, and what differs, the most telling first."""

    letters: int
    others: int
    fields: list[Difference]


def facts_of(letter: Letter, redactor: Redactor) -> frozenset[Fact]:
    """What is shown of a letter, as fields with short values."""
    return frozenset(islice((fact for fact in _all(letter, redactor) if _tells(fact)), _FIELDS))


def differences(here: Sequence[frozenset[Fact]], others: Sequence[frozenset[Fact]]) -> Differences:
    """Which facts many letters here have, and few others do. Where there are no others, nothing differs."""
    mine, theirs = _counted(here), _counted(others)
    found = [
        Difference(field, value, _share(count, len(here)), _share(theirs[field, value], len(others)))
        for (field, value), count in mine.items()
        if count >= _LEAST_LETTERS
    ]
    marked = [fact for fact in found if fact.here >= max(_LEAST_SHARE, _TIMES * fact.elsewhere)]
    marked.sort(key=lambda fact: (fact.elsewhere - fact.here, fact.field, fact.value))
    return Differences(len(here), len(others), marked[:_SHOWN] if others else [])


def _all(letter: Letter, redactor: Redactor) -> Iterator[Fact]:
    message, last = letter.message, letter.last
    yield "source", redactor.text(message.source)
    yield "tenant", redactor.text(message.tenant or "")
    yield "version", redactor.text(last.version)
    yield "worker", redactor.text(last.worker)
    for name, value in message.headers:
        if not name.startswith(_OURS):
            yield f"header.{redactor.text(name)}", redactor.header(name, value)
    try:
        shown = read_json(redactor.body(message.body).encode())
    except UNREADABLE:
        return
    yield from _leaves("body", shown, 0)


def _leaves(path: str, value: Any, depth: int) -> Iterator[Fact]:
    """The plain values of a tree with their paths; elements of a list share one path."""
    if isinstance(value, dict) and depth < _DEEPEST:
        for name, part in value.items():
            yield from _leaves(f"{path}.{name}"[:_LONGEST], part, depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for part in value[:_FIELDS]:
            yield from _leaves(f"{path}[]", part, depth + 1)
    elif not isinstance(value, dict | list):
        yield path, "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _tells(fact: Fact) -> bool:
    return 0 < len(fact[1]) <= _LONGEST and MASK not in fact[1] and MASK not in fact[0]


def _counted(letters: Iterable[frozenset[Fact]]) -> Counter[Fact]:
    return Counter(fact for facts in letters for fact in facts)


def _share(count: int, of: int) -> float:
    return round(count / of, 3) if of else 0.0
