"""Masks the keys in notifiers' URLs, so that they reach no log, event or error: not ours, and not the libraries'."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from redrive.forensics.secrets import MASK, hidden_url

_LIBRARIES = ("httpx", "apprise", "urllib3.connectionpool")
"""They log the address that they ask; their children log nothing."""
_SHORTEST = 5  # a shorter part is no key, and would mask plain words


class UrlMask(logging.Filter):
    """Masks every part of those URLs that is not shown anyway, in texts and in what the libraries log."""

    def __init__(self, urls: Iterable[str]) -> None:
        super().__init__()
        parts = {part for url in urls for part in _parts(url)}
        longest_first = sorted(parts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if parts else None

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        masked = self.text(said)
        if masked != said:
            record.msg, record.args = masked, ()
        return True

    def __enter__(self) -> UrlMask:
        for name in _LIBRARIES:
            logging.getLogger(name).addFilter(self)
        return self

    def __exit__(self, *error: object) -> None:
        for name in _LIBRARIES:
            logging.getLogger(name).removeFilter(self)


def _parts(url: str) -> set[str]:
    """The parts of a URL that may be keys, as written and unescaped."""
    from urllib.parse import unquote

    shown = hidden_url(url)
    rest = url.partition("://")[2]
    parts = re.split(r"[/:@?&=#]", rest)
    return {form for part in parts for form in (part, unquote(part)) if len(form) >= _SHORTEST and form not in shown}
