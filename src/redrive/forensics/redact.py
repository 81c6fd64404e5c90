"""Secrets are masked in what is shown, and never in what is stored: a replay needs the message as it was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from redrive.errors import ConfigError
from redrive.forensics.assigned import assigned
from redrive.forensics.base64s import texts_in_base64
from redrive.forensics.binaries import PREVIEW, behind, in_hex, is_binary, unpacked, wide_text
from redrive.forensics.columns import in_columns
from redrive.forensics.percent import Encoded
from redrive.forensics.prefixes import anywhere
from redrive.forensics.secret_keys import Key, keys_in
from redrive.forensics.secrets import KEYS, MASK, STEMS, SUFFIXES, WEAK, folded, stems_of
from redrive.forensics.shapes import Span, numbered, shaped
from redrive.model import Headers

if TYPE_CHECKING:
    from redrive.config.settings import Redaction

_SHORT = 5
"""A key shorter than this counts only as whole words: `user_pin` is one, `spin` is not."""
_LONGEST_KEY = 64
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_UNIQUE = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{1,12}")
_ESCAPED = re.compile(r"\\u(00[2-7][0-9A-Fa-f]|00[C-Fc-f][0-9A-Fa-f]|0[1-5][0-9A-Fa-f]{2})")
_INVISIBLE = re.compile("[\u00ad\u034f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
"""They can be put into a key and nobody sees it."""
_LOOKALIKES = {
    code: code - 0xFEE0
    for code in (0xFF1A, 0xFF1D, *range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))
} | dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), ord(" "))
"""Letters, digits, colon and equals sign of a wide script, and spaces that do not break; each is one for one."""
_STRONG = re.compile(r"(?i)password|passwd|passphrase|api_?key|secret_?key|client_?secret|access_?token|private_?key")
_ESCAPED_BRIEFLY = re.compile(r"(?:\\x|%)(3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa])")
"""Letters and digits that nobody would have had to escape: `%70assword`."""
_LONGEST_HEADER = 16 << 10
_LONGEST_WORD = 4096
_REMEMBERED = 2048  # characters of a text that is worth remembering: errors of a group repeat themselves
_LOOKED_AT = 4  # times of what is shown: masks may be shorter than what they mask
_MOST_PATTERNED = 32 << 10  # characters that a pattern of a user sees at once
_ENDS = (b" ", b"\t", b"\n", b",", b";", b"&", b'"', b"'")
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}
"""Shown as escapes, so that a message cannot drive the terminal it is shown in."""


class Redactor:
    """Masks secrets in texts, headers and bodies: those we know, and keys and patterns of your own.

    A key counts however it is written and at the end of a longer one: `db_password` and `dbPassword` do where
    `password` does, `password_length` does not.
    """

    def __init__(self, keys: Sequence[str] = (), patterns: Sequence[str] = (), defaults: bool = True) -> None:
        own = frozenset(map(folded, keys)) - {""}
        self._keys = own | frozenset(map(folded, KEYS if defaults else ()))
        self._weak = (WEAK if defaults else frozenset()) - own
        self._endings = tuple(key for key in self._keys if len(key) >= _SHORT or not key.isascii())
        self._stems = (STEMS if defaults else ()) + stems_of(tuple(keys))
        self._patterns = tuple(_compiled(pattern) for pattern in patterns)
        self._defaults = defaults
        self._kind = lru_cache(4096)(self._kind_of)
        self._short = lru_cache(2048)(self._masked)

    @classmethod
    @lru_cache(16)
    def of(cls, rules: Redaction) -> Redactor:
        """The redactor that the setting `redact` says: one for all who ask, since to make one costs as much as to mask
        a page, and what it remembers of texts serves all."""
        return cls(rules.keys, rules.patterns, rules.defaults)

    def is_secret(self, key: str) -> bool:
        """Whether what stands under that key is a secret."""
        return bool(self._kind(key[-_LONGEST_KEY:]))

    def _kind_of(self, key: str) -> str:
        """ "strong", "weak" if prose has it too, or "" for a key of no secret."""
        if kind := self._kind_of_words(key, _WORDS.findall(key)):
            return kind
        words, least = _WORDS.findall(key), 0
        while len(words) > 1 and (words[-1].isdigit() or words[-1].lower() in SUFFIXES or words[-1].lower() == "v"):
            words.pop()
            least = _SHORT  # `password2` is one, `pin2` is a part of a device
        whole = "".join(words)
        return self._kind_of_words(whole, words) if len(whole) >= least > 0 else ""

    def _kind_of_words(self, key: str, words: list[str]) -> str:
        tails = ["".join(words[start:]).lower() for start in range(len(words))]
        matching = self._keys.intersection(tails)
        whole = folded(key)
        if not matching and whole not in self._keys and not whole.endswith(self._endings):
            return ""
        return "weak" if whole in self._weak else "strong"

    def text(self, text: str) -> str:
        """The text with its secrets masked; without any it is unchanged."""
        if len(text) > _REMEMBERED:
            return self._masked(text)
        return text if _UNIQUE.fullmatch(text) else self._short(text)

    def data(self, data: bytes) -> str:
        """The data as a text with its secrets masked; bytes that are no text are shown as `\\xNN`."""
        return self.text(_visible(data))

    def headers(self, headers: Headers) -> list[tuple[str, str]]:
        """The headers, masked, in order, repeats kept; bytes that are no text are shown as `\\xNN`, long ones cut."""
        return [(self.text(name), self.header(name, value)) for name, value in headers]

    def header(self, name: str, value: bytes) -> str:
        """The value of a header of that name."""
        return MASK if value and self.is_secret(name) else self.start(value)

    def body(self, body: bytes, limit: int = 64 * 1024) -> str:
        """The body, masked: JSON stays JSON as it was written, text is text, MessagePack and UTF-16 are shown as what
        they say, the rest as a preview in hex. What is cut says so. No more is looked at than may be shown."""
        part = body[: _LOOKED_AT * limit + _LONGEST_WORD]
        if is_binary(part[:limit]) or _is_packed(part):
            return self._binary(body, part, limit)
        return self._start(part, limit, len(body))

    def start(self, data: bytes, limit: int = _LONGEST_HEADER) -> str:
        """As `data`, but no more than is worth showing; what is cut says so."""
        return self._start(data[: _LOOKED_AT * limit + _LONGEST_WORD], limit, len(data))

    def _start(self, part: bytes, limit: int, size: int) -> str:
        whole = part if len(part) == size else _whole_words(part)
        text = _visible(whole)
        is_framed = "\\x" in text and b"\\x" not in whole and whole.lstrip()[:1] not in (b"{", b"[", b'"')
        shown = self._masked(text, is_framed=True) if is_framed else self.text(text)
        return _clipped(shown, limit, size - len(whole), len(whole))

    def _binary(self, body: bytes, part: bytes, limit: int) -> str:
        if (wide := wide_text(part)) is not None:
            return _clipped(f"UTF-16, {len(body):,} bytes: {self.text(wide.translate(_CONTROLS))}", limit, 0, 0)
        if (said := unpacked(body)) is not None:
            return _clipped(f"MessagePack, {len(body):,} bytes: {self.text(said)}", limit, 0, 0)
        return f"binary, {len(body):,} bytes: {in_hex(body, self._near)}{_more(len(body) - PREVIEW)}"

    def _near(self, text: str) -> Iterator[tuple[int, int]]:
        """Where secrets may be in bytes that are read as if they were a text."""
        lower = _lower(text)
        yield from ((start, end) for start, end, _ in self._spans(text))
        if self._defaults:
            yield from anywhere(text)
        yield from (behind(key.end) for key in self._keys_in(text, lower))
        yield from (span[:2] for span in self._glued(text))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _masked(self, text: str, *, is_framed: bool = False) -> str:
        plain = _ESCAPED.sub(_unescaped, text) if "\\u0" in text else text
        if "%" in plain or "\\x" in plain:
            plain = _ESCAPED_BRIEFLY.sub(_unescaped, plain)
        if not plain.isascii():
            plain = _INVISIBLE.sub("", plain)
        spans = self._spans(plain if plain.isascii() else plain.translate(_LOOKALIKES))
        if is_framed:
            spans += self._glued(plain)
        return _replaced(plain, spans) if spans else text

    def _glued(self, text: str) -> Iterator[Span]:
        """Behind keys in bytes that are shown as a text though they are none: CBOR puts a letter before each word."""
        if self._defaults:
            for found in _STRONG.finditer(text):
                if text[found.end() : found.end() + 1].isalnum():
                    yield (*behind(found.end()), MASK)

    def _spans(self, text: str, *, is_decoded: bool = False) -> list[Span]:
        lower, is_json = _lower(text), text.lstrip()[:1] in ("{", "[")
        found = list(assigned(text, self._keys_in(text, lower), is_json))
        found += ((start, end, MASK) for start, end in in_columns(text, lower, self._kind))
        if self._defaults:
            found += shaped(text, lower)
            found += _as_values(text, numbered(text), is_json)
        found += self._of_patterns(text)
        if not is_decoded:
            found += self._encoded(text) if "%" in text else ()
            found += self._in_base64(text)
        return found

    def _encoded(self, text: str) -> Iterator[Span]:
        """Words that hold a secret once they are decoded; each is masked as a whole."""
        encoded = Encoded(text)
        spans = self._spans(encoded.text, is_decoded=True) if encoded.text else []
        return ((start, end, MASK) for start, end in encoded.holding(spans))

    def _in_base64(self, text: str) -> Iterator[Span]:
        """Texts in Base64 that hold a secret; each is masked as a whole."""
        for start, end, said in texts_in_base64(text):
            if self._spans(said, is_decoded=True):
                yield start, end, MASK

    def _keys_in(self, text: str, lower: str) -> list[Key]:
        return keys_in(text, lower, self._stems, self._kind)

    def _of_patterns(self, text: str) -> Iterator[Span]:
        """Those of the user's own patterns, which see a bounded part of a text at once, and each place twice."""
        for pattern in self._patterns:
            for start in range(0, max(len(text), 1), _MOST_PATTERNED // 2):
                for found in pattern.finditer(text, start, start + _MOST_PATTERNED):
                    yield found.start(), found.end(), MASK


def _replaced(text: str, spans: Iterable[Span]) -> str:
    """The text with these masked; those that overlap are one."""
    parts, done = list[str](), 0
    start = end = -1
    shown = ""
    for first, last, mask in sorted(spans, key=lambda span: (span[0], -span[1])):
        if first < end:
            end = max(end, last)
            continue
        if end >= 0:
            parts += (text[done:start], shown)
            done = end
        start, end, shown = first, last, mask
    return "".join((*parts, text[done:start], shown, text[end:]))


def _as_values(text: str, spans: Iterable[Span], is_json: bool) -> Iterator[Span]:
    """A number that is a value of JSON is masked by a text, so that JSON stays JSON."""
    for start, end, mask in spans:
        before, after = text[max(start - 8, 0) : start].rstrip()[-1:], text[end : end + 8].lstrip()[:1]
        alone = is_json and before in (":", "[", ",") and after in (",", "]", "}") and text[start:end].isdigit()
        yield start, end, f'"{mask}"' if alone else mask


def _lower(text: str) -> str:
    """In small letters, with as many characters as before."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").lower()


def _unescaped(escaped: re.Match[str]) -> str:
    """A letter that is written as an escape, to hide a key or because a library does so; marks stay as they are."""
    char = chr(int(escaped[1], 16))
    return char if char.isalnum() or char in "_&<>=+/" else escaped[0]


def _clipped(shown: str, limit: int, unseen: int, size: int) -> str:
    """What is shown: all of it, or its start and how much more there is."""
    data = shown.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return shown + _more(unseen)
    return data[:limit].decode("utf-8", "ignore") + _more(max(size, len(data)) - limit + unseen)


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


def _is_packed(part: bytes) -> bool:
    """Whether it begins as MessagePack's objects and lists do, which is no UTF-8."""
    return part[:1] > b"\x7f" and unpacked(part) is not None


def _whole_words(data: bytes) -> bytes:
    """The data less its last word, which may be half a secret."""
    end = max(data.rfind(mark, max(len(data) - _LONGEST_WORD, 0)) for mark in _ENDS) + 1
    return data[: end or len(data)]


def _more(count: int) -> str:
    return f" … {count:,} more bytes" if count > 0 else ""
