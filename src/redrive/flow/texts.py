"""Pure: what the words of an error say. A guess, asked last: words are written for people."""

from __future__ import annotations

import re

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
    parse_code,
)
from redrive.model import Category

_WORDS = tuple(
    (re.compile(rf"\b(?:{words})\b", re.IGNORECASE), category)
    for words, category in (
        # in this order: "validation timed out" is worth a retry, and an invalid certificate is not bad input
        (r"rate[ -]?limit\w*|throttl\w*|too many requests|temporar(?:y|ily)|busy|overloaded", TRANSIENT),
        (r"try again|retry later|deadlock\w*|(?:is|database) locked|lock timeout|slow down", TRANSIENT),
        (r"time[ds]?[ -]?out|timeouts?|deadline exceeded|unreachable|dns|name resolution|ssl|tls", NETWORK),
        (r"connect(?:ion)? (?:error|failure|failed|refused|reset|aborted|closed|lost|broken|timed)", NETWORK),
        (
            r"certificate|broken pipe|network (?:error|is down)|(?:could not|cannot|unable to) connect",
            NETWORK,
        ),
        (r"(?:server )?disconnected|no route to host|remote end closed", NETWORK),
        (r"out of memory|oom|cannot allocate memory|no space left|disk (?:is )?full|quota\w*", RESOURCE),
        (
            r"too many open files|too many connections|resource exhausted|insufficient (?:memory|storage)",
            RESOURCE,
        ),
        (
            r"permission (?:error|denied)|access (?:is )?denied|un(?:authori[sz]|authenticat)ed|forbidden",
            PERMISSION,
        ),
        (r"not authori[sz]ed|authentication failed|invalid (?:credentials|api key)", PERMISSION),
        (r"invalid\w*|malformed|validation|schema(?! registry)|pars(?:e|ing) error|syntax error", VALIDATION),
        (r"integrity error|data error|missing (?:required )?(?:field|argument|parameter)", VALIDATION),
        (r"programming error|not supported|unsupported", PERMANENT),
    )
)
_CODES: tuple[tuple[re.Pattern[str], Family | None], ...] = (
    (re.compile(r"\bSMTP(?: (?:error|code|status))*[ :]+\(?([45]\d\d)\b", re.IGNORECASE), Family.SMTP),
    (
        re.compile(r"\bHTTP(?:/\d(?:\.\d)?)?(?: (?:error|code|status))*[ :]+\(?([45]\d\d)\b", re.IGNORECASE),
        Family.HTTP,
    ),
    (re.compile(r"\bstatus(?:[ _]?code)?[ :=]+([45]\d\d)\b", re.IGNORECASE), Family.HTTP),
    (
        re.compile(r"\A\(?([45]\d\d)[ -][45]\.\d{1,3}\.\d{1,3}\b"),
        Family.SMTP,
    ),  # as servers answer: 550 5.1.1 …
    (re.compile(r"\bStatusCode\.([A-Z_]+)\b"), Family.GRPC),
    (re.compile(r"\AAn error occurred \((\w+)\)"), Family.AWS),
)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")


def code_in(text: str) -> Code | None:
    """The first code that the text names and that somebody knows."""
    matches = ((pattern.search(text), family) for pattern, family in _CODES)
    codes = (parse_code(match[1], family) for match, family in matches if match)
    return next((code for code in codes if code is not None and category_of(code) is not None), None)


def category_in(text: str) -> Category | None:
    """What kind of trouble its words speak of."""
    return next((category for pattern, category in _WORDS if pattern.search(text)), None)


def spoken_name(kind: type) -> str:
    """The words of a type's name: `ReadTimeoutError` says "Read Timeout Error"."""
    return _HUMPS.sub(" ", str(kind.__name__))
