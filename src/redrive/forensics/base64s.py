"""Texts in Base64, as queues and webhooks wrap their bodies in, and what they say."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator

_RUNS = bytes(120 if chr(code) in "+/_-" or (chr(code).isalnum() and code < 128) else 32 for code in range(256))
_RUN = b"x" * 37  # longer than a UUID and a digest of MD5, which are many
_LOOKED_AT = 64  # characters of its beginning, which tell a text from a picture
_MOST = 256 << 10
_OTHER = str.maketrans("-_", "+/")


def texts_in_base64(text: str) -> Iterator[tuple[int, int, str]]:
    """From where, to where, and what it says."""
    runs, left = text.encode("ascii", "replace").translate(_RUNS), _MOST
    end = 0
    while left > 0 and (place := runs.find(_RUN, end)) >= 0:
        end = runs.find(b" ", place)
        end = len(runs) if end < 0 else end
        start = text[place : min(end, place + _LOOKED_AT)]
        if start.islower() or start.isupper() or _decoded(start) is None:
            continue  # a hash, or bytes that are no text
        said = _decoded(text[place : min(end, place + left)])
        left -= end - place
        if said is not None:
            yield place, end, said


def _decoded(word: str) -> str | None:
    """What it says, if that is a text; it may be cut in the middle of a letter."""
    plain = word.translate(_OTHER)
    try:
        said = b64decode(plain + "=" * (-len(plain) % 4) if len(plain) % 4 != 1 else plain[:-1]).decode(
            "utf-8", "replace"
        )
    except ValueError:
        return None
    return said if said.count("\ufffd") <= 1 and _is_text(said) else None


def _is_text(said: str) -> bool:
    return all(char.isprintable() or char in "\r\n\t\ufffd" for char in said[:256])
