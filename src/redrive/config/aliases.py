"""Settings of a system under the names that somebody else's contract gives them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.config.load import ENVIRONMENT, Given, checked, known, parsed
from redrive.config.parse import meant_by
from redrive.config.settings import Settings, system_sections
from redrive.errors import ConfigError, nearest


class Aliases(Struct, frozen=True):
    """Other names of settings, which somebody else's contract gave them: name -> path of ours."""

    file: Mapping[str, str]  # in a file, below `table`
    environ: Mapping[str, str]
    table: str


def with_aliases(
    settings: Settings, aliases: Aliases, file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Those settings, overridden by what the file says under other names, and by the environment."""
    environ = os.environ if environ is None else environ
    given = {value.key.path: value for value in _by_alias(file, aliases)} if file else {}
    for name, path in aliases.environ.items():
        if environ.get(name, "").strip():
            key = known()[path]
            given[path] = Given(key, meant_by(key, environ[name].strip()), ENVIRONMENT, name)
    for value in given.values():
        settings = _with(settings, value)
    return settings


def _by_alias(file: Path, aliases: Aliases) -> Iterator[Given]:
    """The keys of the one table that is ours; the file may have any others."""
    table: Any = parsed(file)
    for name in aliases.table.split("."):
        table = table.get(name) if isinstance(table, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{aliases.table} in {file} is not a mapping: it has {', '.join(aliases.file)}")
    for name, raw in (table or {}).items():
        if name not in aliases.file:
            raise ConfigError(
                f"unknown setting {f'{aliases.table}.{name}'!r} in {file}{nearest(str(name), aliases.file)}"
            )
        yield Given(known()[aliases.file[name]], raw, str(file), f"{aliases.table}.{name}")


def _with(settings: Settings, given: Given) -> Settings:
    """Those settings with one value of a system's section changed."""
    section, _, name = given.key.path.partition(".")
    before = settings.of(system_sections()[section])
    return settings.having(replace(before, **{name: checked(given)}))
