"""Words of a text that are percent-encoded, as in URLs and forms, and what they say."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_plus

_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_WORDS = bytes(
    120 if chr(code) in "-._~%+*!()/:@$" or (chr(code).isalnum() and code < 128) else 32 for code in range(256)
)
_LONGEST_BEFORE = 4096
_MOST_LEVELS = 3


class Encoded:
    """Those words, decoded, one on each line."""

    def __init__(self, text: str) -> None:
        self._words = list(_words(text))
        said = [_decoded(text[start:end]) for start, end in self._words]
        self._begins, begin = list[int](), 0
        for word in said:
            self._begins.append(begin)
            begin += len(word) + 1
        self.text = "\n".join(said)

    def holding(self, spans: Iterable[tuple[int, int, str]]) -> Iterator[tuple[int, int]]:
        """The words, where they stand in the first text, that hold these spans of what they say."""
        seen: set[int] = set()
        for start, _, _ in spans:
            which = bisect_right(self._begins, start) - 1
            if which not in seen:
                seen.add(which)
                yield self._words[which]


def _decoded(word: str) -> str:
    """What it says; a URL in a URL in a URL is encoded as often."""
    said = unquote_plus(word)
    for _ in range(_MOST_LEVELS - 1):
        if _ESCAPE.search(said.encode("ascii", "replace")) is None:
            break
        said = unquote_plus(said)
    return said.replace("\n", " ")


def _words(text: str) -> Iterator[tuple[int, int]]:
    plain = text.encode("ascii", "replace")
    words = plain.translate(_WORDS)
    found = _ESCAPE.search(plain)
    while found is not None:
        place = found.start()
        least = max(place - _LONGEST_BEFORE, 0)
        start = words.rfind(b" ", least, place) + 1 or least
        end = words.find(b" ", place)
        end = len(words) if end < 0 else end
        yield start, end
        found = _ESCAPE.search(plain, end)
