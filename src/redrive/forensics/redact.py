"""Secrets are masked in what is shown, and never in what is stored: a replay needs the message as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from redrive.errors import ConfigError
from redrive.forensics.jsontext import Kind, NotJson, Token, tokens
from redrive.forensics.secrets import KEYS, MASK, NOTHING, PATTERNS, Pattern
from redrive.model import Headers

if TYPE_CHECKING:
    from redrive.config.settings import Redaction

_SHORT = 5
"""A key shorter than this counts only as whole words: `user_pin` is one, `spin` is not."""
_LONGEST_KEY = 64
_WHOLE = re.compile(r"-?[0-9]+")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")

_KEY = re.compile(
    r"""(?<![\w.-]) (?P<key>[\w.-]++)
        (?: ["'`]?\s{0,4}=(?!=)\s{0,4} | ["'`]\s{0,4}:\s{0,4} | :\s{0,4}(?=["'`]) )""",
    re.VERBOSE,
)
_VALUE = re.compile(
    r"""(?P<quote>["'`]) (?P<quoted>(?:\\.|(?!(?P=quote))[^\\])*+)
      | (?P<nested>[\[{(] [^\]})]*+ [\]})]?)
      | (?P<bare>(?:(?:bearer|basic|token)\ +)? [^\s,;&"'`)}\]]++)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""Together `key=value`, `"key": "value"`, `key: 'value'`, wherever they stand."""
_LINE = re.compile(r"(?m)^[ \t-]*+(?P<key>[\w.-]++):[ \t]++(?P<value>[^\s\"'`{\[][^\n\r]*)")
"""`key: value` fills a line, as in headers and YAML; in prose ("unexpected token: x") it is no assignment."""

_MOST_PARSED = 1 << 20
_LONGEST_HEADER = 16 << 10
_LONGEST_WORD = 4096
_ENDS = (b" ", b"\t", b"\n", b",", b";", b"&", b'"', b"'")
_PREVIEW = 64
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}
"""Shown as escapes, so that a message cannot drive the terminal it is shown in."""
_STRANGE = dict.fromkeys(_CONTROLS, "\ufffd")


class Redactor:
    """Masks secrets in texts, headers and bodies: those we know, and keys and patterns of your own.

    A key counts however it is written and at the end of a longer one: `db_password` and `dbPassword` do where
    `password` does, `password_length` does not.
    """

    def __init__(self, keys: Sequence[str] = (), patterns: Sequence[str] = (), defaults: bool = True) -> None:
        self._keys = frozenset(_folded(key) for key in (*keys, *(KEYS if defaults else ()))) - {""}
        self._endings = tuple(key for key in self._keys if len(key) >= _SHORT)
        own = tuple((_compiled(pattern), MASK) for pattern in patterns)
        self._patterns: tuple[Pattern, ...] = own + (PATTERNS if defaults else ())

    @classmethod
    def of(cls, rules: Redaction) -> Redactor:
        """A redactor as the setting `redact` says."""
        return cls(rules.keys, rules.patterns, rules.defaults)

    def is_secret(self, key: str) -> bool:
        """Whether what stands under that key is a secret."""
        words = _WORDS.findall(key[-_LONGEST_KEY:])
        tails = {"".join(words[start:]).lower() for start in range(len(words))}
        return not self._keys.isdisjoint(tails) or _folded(key[-_LONGEST_KEY:]).endswith(self._endings)

    def text(self, text: str) -> str:
        """The text with its secrets masked; without any it is unchanged."""
        text = self._unassigned(_LINE.sub(self._masked_line, text))
        for pattern, replacement in self._patterns:
            text = pattern.sub(replacement, text)
        return text

    def data(self, data: bytes) -> str:
        """The data as a text with its secrets masked; bytes that are no text are shown as `\\xNN`."""
        return self.text(_visible(data))

    def headers(self, headers: Headers) -> list[tuple[str, str]]:
        """The headers, masked, in order, repeats kept; bytes that are no text are shown as `\\xNN`, long ones cut."""
        return [(name, self.header(name, value)) for name, value in headers]

    def header(self, name: str, value: bytes) -> str:
        """The value of a header of that name."""
        return MASK if value and self.is_secret(name) else self.start(value)

    def body(self, body: bytes, limit: int = 64 * 1024) -> str:
        """The body, masked: JSON token by token as it was written, text as text, the rest as a preview in hex; what is
        cut says so."""
        shown = self._json(body, limit)
        if shown is not None:
            return shown
        if _is_binary(body[:limit]):
            return f"binary, {len(body):,} bytes: {body[:_PREVIEW].hex(' ')}{_more(len(body) - _PREVIEW)}"
        return self.start(body, limit)

    def start(self, data: bytes, limit: int = _LONGEST_HEADER) -> str:
        """As `data`, but no more than is worth showing; what is cut says so."""
        shown = _whole_words(data, limit)
        return self.text(_visible(shown)) + _more(len(data) - len(shown))

    def _json(self, body: bytes, limit: int) -> str | None:
        """None: it is no JSON, as far as it would be shown, or a very long one."""
        if len(body) > _MOST_PARSED:
            return None
        try:
            text = body.decode()
            return _clipped("".join(self._masked(text, limit)), limit, text)
        except (UnicodeDecodeError, NotJson):
            return None

    def _masked(self, text: str, limit: int) -> Iterator[str]:
        """The tokens of a document with the secrets masked, until there are enough of them."""
        size, found = 0, tokens(text)
        known: dict[tuple[Kind, str], tuple[str, bool]] = {}  # documents repeat themselves
        for token in found:
            if (seen := (token.kind, token.text)) not in known:
                known[seen] = self._token(token), token.kind is Kind.KEY and self.is_secret(_said(token))
            masked, is_secret = known[seen]
            yield token.space + masked
            size += len(token.space) + len(masked)
            if size > limit:
                return
            if is_secret:
                yield next(found).text  # the colon
                yield from _masked_value(found)

    def _token(self, token: Token) -> str:
        if token.kind in (Kind.OPEN, Kind.CLOSE, Kind.COMMA, Kind.COLON, Kind.WORD):
            return token.text
        if token.kind in (Kind.KEY, Kind.TEXT):
            said = _said(token)
            masked = self.text(said)
            return token.text if masked == said else json.dumps(masked, ensure_ascii=not _is_writable(masked))
        if token.kind is Kind.NUMBER and _WHOLE.fullmatch(token.text) and self.text(token.text) != token.text:
            return f'"{MASK}"'
        return token.text

    def _masked_line(self, line: re.Match[str]) -> str:
        if line["value"].strip().lower() in NOTHING or not self.is_secret(line["key"]):
            return line[0]
        return line[0][: line.start("value") - line.start()] + MASK

    def _unassigned(self, text: str) -> str:
        """Mask the values of `key=value`. Only values of secret keys are read, so that nesting costs nothing."""
        parts, done = list[str](), 0
        for key in _KEY.finditer(text):
            value = _VALUE.match(text, key.end()) if key.start() >= done and self.is_secret(key["key"]) else None
            if value is not None and value[value.lastgroup or 0].strip().lower() not in NOTHING:
                start, end = value.span(value.lastgroup or 0)
                parts += (text[done:start], MASK)
                done = end
        return "".join((*parts, text[done:]))


def _folded(key: str) -> str:
    return re.sub(r"[\W_]", "", key).lower()


def _said(token: Token) -> str:
    """What a text in JSON says."""
    if "\\" not in token.text:
        return token.text[1:-1]
    said: str = json.loads(token.text)
    return said


def _masked_value(found: Iterator[Token]) -> Iterator[str]:
    """The next value, masked as a whole; one that says nothing is no secret."""
    first = next(found)
    if first.kind is not Kind.OPEN:
        says_nothing = first.kind is Kind.WORD or first.text == '""'
        yield first.space + (first.text if says_nothing else f'"{MASK}"')
        return
    inside, last = 0, first
    level = 1
    while level:
        last = next(found)
        level += (last.kind is Kind.OPEN) - (last.kind is Kind.CLOSE)
        inside += 1
    yield first.space + (f'"{MASK}"' if inside > 1 else first.text + last.space + last.text)


def _is_writable(text: str) -> bool:
    """Whether UTF-8 can write it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clipped(shown: str, limit: int, whole: str) -> str:
    """What is shown of the whole: all of it, or its start and how much more there is."""
    data = shown.encode()
    if len(data) <= limit:
        return shown
    return data[:limit].decode("utf-8", "ignore") + _more(max(len(whole.encode()), len(data)) - limit)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"redact pattern {pattern!r} is not a regular expression: {error}") from error
    if compiled.match("") is not None:
        raise ConfigError(f"redact pattern {pattern!r} matches an empty text, so it would mask everything")
    return compiled


def _visible(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").translate(_CONTROLS)


def _is_binary(data: bytes) -> bool:
    """Whether it is no text: it has a NUL, or more than a third of it cannot be read."""
    strange = data.decode("utf-8", "replace").translate(_STRANGE).count("\ufffd")
    return b"\0" in data or strange * 3 > len(data)


def _whole_words(data: bytes, limit: int) -> bytes:
    """The data up to the limit, less a word that it would cut: half a secret cannot be recognised."""
    if len(data) <= limit:
        return data
    end = max(data.rfind(mark, max(limit - _LONGEST_WORD, 0), limit) for mark in _ENDS) + 1
    return data[: end or limit]


def _more(count: int) -> str:
    return f" … {count:,} more bytes" if count > 0 else ""
