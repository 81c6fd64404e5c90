"""Where the keys of secrets stand: a text is searched for their beginnings, and looked at closely only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_LONGEST_KEY = 64
_KEY_CHARS = bytes(
    107 if code > 127 or chr(code).isalnum() or chr(code) in "_.-$?" else 32 for code in range(256)
)  # 107 is k; "?" stands for what is no ASCII
_LETTERS = bytes(code if 97 <= code <= 122 else 32 for code in range(256))
_LONG = 4096


class Key(NamedTuple):
    """A key where it stands."""

    name: str
    start: int
    end: int
    weak: bool


def keys_in(text: str, lower: str, stems: tuple[str, ...], is_secret: Callable[[str], str]) -> list[Key]:
    """Every secret key of the text, in order; `is_secret` says "", "weak" or "strong"."""
    plain = text.encode("ascii", "replace").translate(_KEY_CHARS)
    found: dict[int, Key] = {}
    for stem in stems if len(text) < _LONG else _present(stems, lower):
        place = lower.find(stem)
        while place >= 0:
            start = plain.rfind(b" ", max(place - _LONGEST_KEY, 0), place) + 1
            start = _past_escape(text, start or max(place - _LONGEST_KEY, 0))
            end = plain.find(b" ", place)
            end = len(text) if end < 0 else end
            if start not in found:
                name = text[start:end].rstrip(".-")
                kind = is_secret(name[-_LONGEST_KEY:])
                if kind:
                    found[start] = Key(name, start, start + len(name), kind == "weak")
            place = lower.find(stem, max(end, place + 1))
    return [found[start] for start in sorted(found)]


def _present(stems: tuple[str, ...], lower: str) -> list[str]:
    """Those that may be in a long text: to look into each word once is faster than to look for each stem in all."""
    words = b" ".join(set(lower.encode("ascii", "replace").translate(_LETTERS).split()))
    return [stem for stem in stems if not (stem.isascii() and stem.isalpha()) or stem.encode() in words]


def _past_escape(text: str, start: int) -> int:
    """A line's end in JSON has a letter, which is none of the key's."""
    return start + 1 if start and text[start - 1] == "\\" and text[start : start + 1] in ("n", "r", "t") else start
