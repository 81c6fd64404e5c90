"""The settings of the tickets: our own section, and under the contract's names a YAML file and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from redrive.config.settings import Settings, Tickets
from redrive.errors import ConfigError, MissingExtra, nearest

_KEYS = {"enabled": "dlq_enabled", "topic": "dlq_topic", "maxRetriesBeforeDLQ": "max_retries"}
_VARIABLES = {"KAFKA_DLQ_TOPIC": "dlq_topic", "KAFKA_MAX_RETRIES_BEFORE_DLQ": "max_retries"}


def with_values(settings: Settings, values: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Our settings, with `kafka.dlq.*` of that YAML file over them, and the environment over both."""
    environ = os.environ if environ is None else environ
    given = _from_file(values) if values is not None else {}
    given |= {name: environ[variable] for variable, name in _VARIABLES.items() if environ.get(variable)}
    return replace(settings, tickets=replace(settings.tickets, **{name: _read(name, given[name]) for name in given}))


def _from_file(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra("a YAML file", "yaml") from error
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for name in ("kafka", "dlq"):
        found = found.get(name, {}) if isinstance(found, dict) else None
    if found is not None and not isinstance(found, dict):
        raise ConfigError(f"{path}: kafka.dlq is not a mapping: it has {', '.join(_KEYS)}")
    for key in found or {}:
        if key not in _KEYS:
            raise ConfigError(f"{path}: unknown key kafka.dlq.{key}{nearest(str(key), _KEYS)}")
    return {_KEYS[key]: value for key, value in (found or {}).items()}


def _read(name: str, value: object) -> object:
    kind = type(getattr(Tickets(), name))
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and str(value).isdecimal() and not isinstance(value, bool) and int(str(value)) >= 1:
        return int(str(value))
    if kind is str and isinstance(value, str) and value:
        return value
    takes = {bool: "true or false", int: "a whole number, 1 or more", str: "a text"}[kind]
    raise ConfigError(f"tickets: {name} is {value!r}: it is {takes}")
