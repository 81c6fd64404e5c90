"""From what somebody wrote, in a file or in the environment, to the value of a setting."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec

from redrive.config.durations import duration
from redrive.config.settings import Key
from redrive.errors import ConfigError
from redrive.untrusted import UNREADABLE

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmg]?i?b)", re.IGNORECASE)
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_BOOLS = {**dict.fromkeys(("true", "yes", "on", "1"), True), **dict.fromkeys(("false", "no", "off", "0"), False)}


def value_of(key: Key, raw: object) -> Any:
    """The value, or ValueError if the setting does not take it."""
    try:
        value = None if key.optional and raw in (None, "none") else _converted(key, raw)
    except (TypeError, OverflowError, ConfigError) as error:
        raise ValueError(str(error)) from error
    if not _is_within(key, value):
        raise ValueError(f"not {key.takes}")
    return value


def meant_by(key: Key, text: str) -> object:
    """What a text stands for where everything is a text; one that makes no sense is left for `value_of` to refuse."""
    if key.kind is int and re.fullmatch(r"[+-]?\d[\d_]{0,20}", text):
        return int(text.replace("_", ""))
    if key.kind is bool:
        return _BOOLS.get(text.lower(), text)
    if key.kind is tuple:
        return _listed(text)
    return text


def _listed(text: str) -> object:
    """With commas, or as a JSON list where an item has a comma itself."""
    if not text.startswith('["'):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


def _converted(key: Key, raw: object) -> Any:
    if key.kind is timedelta and isinstance(raw, str):
        return duration(raw)
    if key.about.is_size and isinstance(raw, str):
        return size_of(raw)
    if key.kind is tuple and isinstance(raw, list) and all(isinstance(item, str) for item in raw):
        return tuple(raw)
    if type(raw) is not key.kind:  # exactly: to Python, true is a whole number
        raise TypeError(f"a {type(raw).__name__}")
    return raw


def size_of(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _is_within(key: Key, value: Any) -> bool:
    if value is None:
        return True
    about = key.about
    if about.choices:
        return value in about.choices
    measure: Any = len(value) if isinstance(value, str) else value
    least: Any = about.least
    most: Any = about.most
    return (least is None or measure >= least) and (most is None or measure <= most)
