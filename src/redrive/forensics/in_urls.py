"""Passwords and tokens before the host of a URL, also where somebody forgot to encode their / # ?."""

from __future__ import annotations

import re
from collections.abc import Iterator

from redrive.forensics.secrets import is_random

_STARTS = ("://", ":\\/\\/")  # the second is in JSON
_USER = re.compile(r"[^\s/:@?#\"'<>\\]{0,256}+:(?!\d{1,5}(?:[/?#]|\Z))")
_TOKEN = re.compile(r"[\w.~%+-]{16,512}+(?=@)")
_AUTHORITY = re.compile(r"[^\s/?#\"'<>\\]{1,1024}+")
_ANYTHING = re.compile(r"[^\s\"'<>\\]{1,200}+")
_HOST_AND_PORT = re.compile(r"@[A-Za-z][\w.-]{1,253}:\d{2,5}(?!\d)")
_NO_SCHEME = re.compile(r"(?<![\w./@:-])(?://)?[\w.-]{1,64}:(?P<said>[^\s/@:\"'<>\\]{4,128})\Z")
"""`ann:S@db.internal:5432`, as drivers say where they could not connect to."""
_HOST = re.compile(r"@[\w.\[-]")


def in_urls(text: str) -> Iterator[tuple[int, int]]:
    """Where they are."""
    if "@" not in text:
        return
    for start in _STARTS:
        place = text.find(start)
        while place >= 0:
            place += len(start)
            span = _before_host(text, place)
            if span is not None:
                yield span
            place = text.find(start, place)
    place = text.find("@")
    while place >= 0:
        if _HOST_AND_PORT.match(text, place) and (found := _NO_SCHEME.search(text, max(place - 160, 0), place)):
            yield found.span("said")
        place = text.find("@", place + 1)


def _before_host(text: str, place: int) -> tuple[int, int] | None:
    token = _TOKEN.match(text, place)
    if token is not None:
        return token.span() if any(char.isdigit() for char in token[0]) and is_random(token[0], 3.0) else None
    user = _USER.match(text, place)
    return None if user is None else _password(text, user.end())


def _password(text: str, start: int) -> tuple[int, int] | None:
    """To the last @ of what may stand before a host, or to the first that a host follows."""
    authority = _AUTHORITY.match(text, start)
    end = text.rfind("@", start, authority.end() + 1) if authority is not None else -1
    if end > start:
        return start, end
    anything = _ANYTHING.match(text, start)
    host = _HOST.search(text, start + 1, anything.end() + 1) if anything is not None else None
    return None if host is None else (start, host.start())
