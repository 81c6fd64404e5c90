"""JSON as the text it is: token by token, whatever its depth. What is not changed stays as it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>[ \t\n\r]*+)
        (?: (?P<text>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")
          | (?P<number>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)
          | (?P<word>true|false|null)
          | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>,) | (?P<colon>:) )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\n\r]*+\Z")
_CLOSES = {"]": "[", "}": "{"}
_DEEPEST = 64  # levels that are worth an indentation
_INDENT = "  "


class Kind(Enum):
    """What a token is."""

    KEY = "key"
    TEXT = "text"
    NUMBER = "number"
    WORD = "word"
    OPEN = "open"
    CLOSE = "close"
    COMMA = "comma"
    COLON = "colon"


class Token(NamedTuple):
    """One token, and the white space before it."""

    kind: Kind
    text: str
    space: str


class _Wants(Enum):
    """What may come next."""

    VALUE = frozenset({Kind.TEXT, Kind.NUMBER, Kind.WORD, Kind.OPEN})
    ITEM = frozenset({Kind.TEXT, Kind.NUMBER, Kind.WORD, Kind.OPEN, Kind.CLOSE})  # behind [
    KEY = frozenset({Kind.KEY})
    FIELD = frozenset({Kind.KEY, Kind.CLOSE})  # behind {
    COLON = frozenset({Kind.COLON})
    MORE = frozenset({Kind.COMMA, Kind.CLOSE})
    NOTHING = frozenset[Kind]()


class NotJson(ValueError):
    """The text is no JSON from that place on."""


def tokens(text: str) -> Iterator[Token]:
    """The tokens of one JSON document. Raises NotJson where it ends being one, after the tokens before that."""
    place, wants, around = 0, _Wants.VALUE, list[str]()
    while wants is not _Wants.NOTHING:
        found = _TOKEN.match(text, place)
        if found is None:
            raise NotJson(f"no JSON at character {place}")
        token = _token(found, wants)
        if token.kind not in wants.value or not _fits(token, around):
            raise NotJson(f"unexpected {token.text[:20]!r} at character {place}")
        yield token
        wants = _after(token, around)
        place = found.end()
    if not _SPACE.match(text, place):
        raise NotJson(f"more than one document: it goes on at character {place}")


def _token(found: re.Match[str], wants: _Wants) -> Token:
    name = found.lastgroup or ""
    kind = Kind.KEY if name == "text" and wants in (_Wants.KEY, _Wants.FIELD) else Kind(name)
    return Token(kind, found[name], found["space"])


def _fits(token: Token, around: list[str]) -> bool:
    """Whether a bracket closes the one that is open."""
    return token.kind is not Kind.CLOSE or (bool(around) and around[-1] == _CLOSES[token.text])


def _after(token: Token, around: list[str]) -> _Wants:
    """What may follow; keeps the brackets that are open."""
    match token.kind:
        case Kind.OPEN:
            around.append(token.text)
            return _Wants.FIELD if token.text == "{" else _Wants.ITEM
        case Kind.KEY:
            return _Wants.COLON
        case Kind.COLON:
            return _Wants.VALUE
        case Kind.COMMA:
            return _Wants.KEY if around[-1] == "{" else _Wants.VALUE
        case Kind.CLOSE:
            around.pop()
    return _Wants.MORE if around else _Wants.NOTHING


def indented(text: str) -> str:
    """The document over several lines, each token as it was written. What is no JSON, or very deep, is unchanged."""
    try:
        return "".join(_lines(text))
    except NotJson:
        return text


def _lines(text: str) -> Iterator[str]:
    level, before = 0, Kind.COLON
    for token in tokens(text):
        if token.kind is Kind.CLOSE:
            level -= 1
        yield _gap(before, token.kind, level) + token.text
        if token.kind is Kind.OPEN:
            level += 1
            if level > _DEEPEST:
                raise NotJson("too deep to be indented")
        before = token.kind


def _gap(before: Kind, kind: Kind, level: int) -> str:
    """What stands between two tokens."""
    if kind in (Kind.COMMA, Kind.COLON) or (before is Kind.OPEN and kind is Kind.CLOSE):
        return ""
    if before is Kind.COLON:
        return " " if level else ""
    return f"\n{_INDENT * level}"
