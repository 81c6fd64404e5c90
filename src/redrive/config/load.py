"""Settings from a file and the environment, validated once, at start.

The environment overrides the file, the file overrides the defaults. Whatever is wrong is a ConfigError that names
the key, where it stands and what it takes, so that no typo is silently a default.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from redrive.config.parse import meant_by, value_of
from redrive.config.settings import Described, Key, S, Settings, describe, keys, system_sections, transport_key
from redrive.errors import ConfigError, MissingExtra, nearest
from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import MASK
from redrive.registry import check_url, naming
from redrive.systems.discover import refused
from redrive.untrusted import UNREADABLE, checked_tree

ENVIRONMENT = "environment"
_FILES = ("redrive.toml", "redrive.yaml", "redrive.yml", "pyproject.toml")
_NOT_SETTINGS = re.compile(r"REDRIVE_(?:CONFIG|TOKEN|TOKEN_FILE|PRINT_TOKEN|(?:SERVERS|BENCH|FAULT)\w*)")
_TRANSPORTS = "REDRIVE_TRANSPORTS_"
_NAME = re.compile(r"[a-z0-9_-]+")
_NO_TRANSPORTS = ("url", "uri", "transport", "transports", "broker", "name", "type", "host", "port", "store")
"""Keys of tables as other programs have them: a transport of that name would be one that nobody uses."""


class Loaded(Struct, frozen=True):
    """Settings, and where each that is no default came from: a file's path, or `environment`."""

    settings: Settings
    sources: dict[str, str]
    file: Path | None

    def describe(self) -> tuple[Described, ...]:
        """Every setting with its value and its source."""
        return describe(self.settings, self.sources)


class Given(Struct, frozen=True):
    """A value as somebody wrote it, and where."""

    key: Key
    raw: object
    source: str
    alias: str = ""  # the name it has there, where that is not ours

    @property
    def place(self) -> str:
        if self.source == ENVIRONMENT:
            return f"in the environment ({self.alias or self.key.environ})"
        return f"in {self.source}{f' ({self.alias})' if self.alias else ''}"


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process."""
    return read(path, environ).settings


def read(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Loaded:
    """The settings of this process, and where each came from."""
    environ = os.environ if environ is None else environ
    file = _find(path, environ)
    given = {value.key.path: value for value in _from_file(file)} if file else {}
    given |= {value.key.path: value for value in _from_environ(environ, tuple(given))}
    values = given | _queue_beside_letters(given)
    _check_urls(given)
    settings = _built({path: checked(value) for path, value in values.items()})
    _check_patterns(settings, given)
    return Loaded(settings, {path: value.source for path, value in given.items()}, file)


def _queue_beside_letters(given: Mapping[str, Given]) -> dict[str, Given]:
    """Where only a SQLite store is given, the queue is in the same file: embedded means one file."""
    store, name = given.get("store"), "transports.default"
    if store is None or name in given or not str(store.raw).startswith("sqlite://"):
        return {}
    return {name: Given(known()[name], store.raw, store.source)}


def _find(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    named = path or (Path(environ["REDRIVE_CONFIG"]) if environ.get("REDRIVE_CONFIG") else None)
    if named is None:
        return next((file for file in map(Path, _FILES) if file.is_file() and _has_settings(file)), None)
    if not named.is_file():
        raise ConfigError(f"there is no configuration file {named}{'' if path else ', which REDRIVE_CONFIG names'}")
    return named


def _has_settings(file: Path) -> bool:
    """A pyproject.toml is there for many reasons; it is ours only with a table of ours."""
    if file.name != "pyproject.toml":
        return True
    try:
        return b"[tool.redrive" in file.read_bytes()
    except OSError:
        return False


def _from_file(file: Path) -> Iterator[Given]:
    tree = parsed(file)
    if file.name == "pyproject.toml":
        tree = tree.get("tool", {}).get("redrive", {})
    for path, raw in _leaves(tree, "", str(file)):
        yield Given(_key(path, str(file)), raw, str(file))


def parsed(file: Path) -> dict[str, Any]:
    """The file as a tree; a file that cannot be read is named with the reason."""
    if file.suffix not in (".toml", ".yaml", ".yml"):
        raise ConfigError(f"{file} is no configuration file: name it .toml, .yaml or .yml")
    try:
        tree = checked_tree(_toml(file) if file.suffix == ".toml" else _yaml(file))
    except (OSError, *UNREADABLE) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{file} is a {type(tree).__name__}; it takes keys with values")
    return tree


def _toml(file: Path) -> Any:
    import tomllib  # here, because most processes start without a file

    return tomllib.loads(file.read_text("utf-8"))


def _yaml(file: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra("a YAML configuration", "yaml") from error
    try:
        return yaml.safe_load(file.read_text("utf-8")) or {}
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _leaves(tree: Mapping[Any, Any], prefix: str, file: str) -> Iterator[tuple[str, object]]:
    """Every value with its path. An unknown table is opened too: the key in it tells what was meant."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        inside = [key.path for key in keys() if key.path.startswith(f"{path}.")]
        if inside and value is None:  # a table in YAML whose keys are all commented out
            continue
        if inside and not isinstance(value, Mapping):
            raise ConfigError(f"{path} = {_shown(value)} in {file}: it is a table, with {', '.join(inside)}")
        if inside or (isinstance(value, Mapping) and value and path not in known()):
            yield from _leaves(value, f"{path}.", file)
        else:
            yield path, value


def _key(path: str, file: str) -> Key:
    section, _, name = path.partition(".")
    if section == "transports" and path not in known():
        return _named(name, f"{path} in {file}")
    if path not in known():
        raise ConfigError(f"unknown setting {path!r} in {file}{_left_out(section) or _nearest_path(path)}")
    return known()[path]


def _named(name: str, place: str) -> Key:
    """The setting of a transport that somebody named; refuses what is rather a typo, or a key of something else."""
    if "." in name:
        raise ConfigError(f"{place}: a transport is one URL, as in {name.partition('.')[0]} = 'redis://localhost'")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{place}: the name of a transport has a-z, 0-9, - and _ only")
    if name in _NO_TRANSPORTS or difflib.get_close_matches(name, ["default"], cutoff=0.7):
        raise ConfigError(
            f"{place}: unknown key, did you mean 'transports.default'? It is the URL of what serves every handler that "
            f"names no other"
        )
    return transport_key(name)


def _left_out(section: str) -> str:
    """Why the settings of a system are not known though it is installed."""
    return next((f": {line}" for line in refused() if line.startswith(f"the system {section!r} ")), "")


@cache
def known() -> dict[str, Key]:
    """Every setting by its path."""
    return {key.path: key for key in keys()}


def _nearest_path(path: str) -> str:
    """The nearest key, or the one in whose section it belongs."""
    ends = {path.rpartition(".")[2]: path for path in known()}
    close = difflib.get_close_matches(path, ends, n=1)
    return nearest(path, known()) or (f": did you mean {ends[close[0]]!r}?" if close else "")


def _from_environ(environ: Mapping[str, str], in_file: tuple[str, ...]) -> Iterator[Given]:
    """What is set and not empty: an empty variable is how many tools write none at all."""
    names = {key.environ: key for key in keys()}
    names |= {key.environ: key for key in map(transport_key, _transports(in_file))}
    for name in sorted(environ):
        if name.startswith("REDRIVE_") and not _NOT_SETTINGS.fullmatch(name) and environ[name].strip():
            key = names.get(name) or _new_transport(name, names)
            yield Given(key, meant_by(key, environ[name].strip()), ENVIRONMENT)


def _transports(paths: tuple[str, ...]) -> list[str]:
    return [path.partition(".")[2] for path in paths if path.startswith("transports.")]


def _new_transport(name: str, names: Mapping[str, Key]) -> Key:
    given = name.removeprefix(_TRANSPORTS).lower()
    if not name.startswith(_TRANSPORTS) or not _NAME.fullmatch(given):
        raise ConfigError(f"unknown setting {name} in the environment{nearest(name, names)}")
    return _named(given, f"{name} in the environment")


def checked(given: Given) -> Any:
    """Its value, or a ConfigError that says where it stands and what it takes."""
    try:
        return value_of(given.key, given.raw)
    except ValueError as error:
        key = given.key
        shown = MASK if key.about.is_secret else _shown(given.raw)
        raise ConfigError(f"{key.path} = {shown} {given.place}: it takes {key.takes}") from error


def _shown(value: object) -> str:
    """As it was written, less the password of a URL, since errors are logged."""
    text = Redactor().text(repr(value))
    return text if len(text) <= 80 else f"{text[:79]}…"


def _built(values: Mapping[str, Any]) -> Settings:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        inner = tree
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    default, systems = Settings(), system_sections()
    own = [kind(**tree.pop(name)) for name, kind in systems.items() if name in tree]
    tree["sections"] = tuple(section for section in own if section != type(section)())
    for section in [name for name, value in tree.items() if isinstance(value, dict)]:
        before = getattr(default, section)
        tree[section] = before | tree[section] if section == "transports" else _section(type(before), tree[section])
    return Settings(**tree)


def _section(kind: type[S], values: Mapping[str, Any]) -> S:
    """A section, with the sections in it."""
    default = kind()
    inner = {name: getattr(default, name) for name in values}
    return kind(
        **{
            name: _section(type(inner[name]), value) if isinstance(inner[name], Struct) else value
            for name, value in values.items()
        }
    )


def _check_urls(given: Mapping[str, Given]) -> None:
    """Refuse a URL that no backend has when it is read, not when it is first used: that may be at 3 a.m."""
    for path, value in given.items():
        if path == "store" or path.startswith("transports."):
            url = checked(value)
            with naming(f"{path} {value.place}"):
                check_url("store" if path == "store" else "transport", url)


def _check_patterns(settings: Settings, given: Mapping[str, Given]) -> None:
    try:
        Redactor.of(settings.redact)
    except ConfigError as error:
        raise ConfigError(f"redact.patterns {given['redact.patterns'].place}: {error}") from error
