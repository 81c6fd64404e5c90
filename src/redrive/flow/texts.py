"""Pure: what the text of an error says: the types it begins with, a code that it names, its words.

Texts are written for people, so this is a guess, and asked last. Which words count is in words.py, and how a code is
spoken of in text_codes.py.
"""

from __future__ import annotations

import re
from functools import lru_cache

from redrive.flow.codes import Code
from redrive.flow.text_codes import find_code_in, find_name_in
from redrive.flow.words import ABSENCE, RULES
from redrive.model import Category

_HEAD, _TAIL = 2000, 1000
_PLACES = re.compile(  # URLs, paths of files and addresses may contain any word
    r"\b\w{1,20}://[^\s'\"<>)]++"
    r"|(?<![\w/.:#<-])(?:~|\.{1,2})?(?:/[\w.@+#%-]++){2,}+/?"
    r"|\b[A-Za-z]:\\[^\s'\"<>|]++"
    r"|(?<![\w.+%-])[\w.+%-]++@[\w.-]++"
)
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_NUMBERS = re.compile(r"\b(?!(?:9|137|x509)\b)(?:\d[\d.,:]*|(?=[a-z]*\d)\w{6,})\b")
_DENIED = re.compile(
    r"\b(?:not (?:a|an|due to|because of|caused by)(?: a| an| the)?|isn't (?:a|an)|non-?|not) ?"
    r"(?:transient|temporary|retr[iy]able|recoverable|network|timeout|connection|permission|validation|rate[ -]limit)\b"
)
_TYPE = re.compile(
    r"(?:Uncaught |Unhandled |Exception in thread \"[^\"]{0,80}\" )?"
    r"([A-Za-z_][\w.$]{2,200}?(?:Error|Exception|Timeout|Throwable|Violation|Warning|Exists|Expired))"
    r"(?: \([-\w]{1,12}\)| \[[\w-]{1,60}\])?(?::\s+|\s*\Z)"
)
_MOST_TYPES = 4


def bounded(text: str) -> str:
    """The text cut in its middle: a cause comes early, or after the last colon."""
    return text if len(text) <= _HEAD + _TAIL else f"{text[:_HEAD]} … {text[-_TAIL:]}"


def types_in(text: str) -> tuple[list[str], str]:
    """The types that a text begins with, outermost first, and the rest: `A: B: c` is a `B` inside an `A`."""
    kinds: list[str] = []
    rest = bounded(text).strip()
    while len(kinds) < _MOST_TYPES and (match := _TYPE.match(rest)):
        kinds.append(match[1])
        rest = rest[match.end() :]
    return kinds, rest


def code_in(text: str) -> Code | None:
    """The first code that the text names and that somebody knows."""
    return find_code_in(_without_places(bounded(text)))


def category_named(text: str) -> Category | None:
    """The category of an errno or SQLSTATE that it names: ECONNREFUSED, SQLSTATE 40001."""
    return find_name_in(bounded(text))


def category_in(text: str) -> Category | None:
    """What kind of trouble its words speak of."""
    return _category(prepared(text))


def speaks_of_absence(text: str) -> bool:
    """Whether what it calls permanent is only that something is not there."""
    return ABSENCE.search(prepared(text)) is not None


def prepared(text: str) -> str:
    """The text as the words are looked for: names as words, lower case, "0" for numbers, no places, no denials."""
    text = _without_places(bounded(text))
    words = text if text.islower() and "_" not in text else _HUMPS.sub(" ", text).lower()
    plain = _NUMBERS.sub("0", " ".join(words.replace("’", "'").split()))
    return _DENIED.sub("…", plain) if "not " in plain or "non" in plain or "isn't" in plain else plain


def _without_places(text: str) -> str:
    return _PLACES.sub("…", text) if "/" in text or "@" in text or "\\" in text else text


def spoken_name(kind: type) -> str:
    """The words of a type's name: `ReadTimeoutError` says "Read Timeout Error"."""
    return _HUMPS.sub(" ", str(kind.__name__))


@lru_cache(maxsize=4096)
def _category(words: str) -> Category | None:
    """Cached: two messages that differ in a number are one here, and most that come differ in no more."""
    return next((category for pattern, category in RULES if pattern.search(words)), None)
