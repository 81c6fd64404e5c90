"""What a system is to the core: one descriptor, found by its entry point in the group `redrive.systems`.

The core knows this descriptor and no system. Ours (tickets, email, files, pipeline, workflow) have no other way in than
yours has: docs/how-to/plugins.md, "Your own system".

Everything that is code is named as `module:attribute` and imported when it is used. The descriptor itself is read for
`redrive --help`; it is a dataclass and no Struct, because that help imports no msgspec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Format:
    """A form of dead messages that `redrive collect` reads with a reader of the system.

    A message has this form if the name of its topic or queue says so, or one of its headers, or bytes in its value, or
    the person who collects (`--format NAME`).
    """

    name: str
    reader: str  # called with the topic's name, `transport=` and `source=`: it makes a redrive.collect.Reader
    about: str = ""  # one line, for the help of `redrive collect`
    schemes: tuple[str, ...] = ("kafka", "kafka+ssl")  # of the brokers where it is found
    topic: str = ""  # a regular expression for the whole name: nothing else lies in such a topic
    header: tuple[str, bytes] | None = None  # its name and its value
    value: bytes = b""  # a part of the value; the reader makes sure
    transport: str = "default"  # what a replay sends them through, where --transport does not say


@dataclass(frozen=True, kw_only=True)
class System:
    """What a system brings. Everything but its name is optional."""

    name: str  # of its settings' section, of its command, and of its entry point
    about: str = ""  # one line, for `redrive --help`
    extra: str = ""  # of Redrive's own, which bring its libraries: one, or several with commas between them
    settings: str = ""  # a Struct whose fields are Annotated with About: the section `[name]`
    command: str = ""  # a click command or group: `redrive NAME`
    switch: str = ""  # a setting of its section: while it is none, there are no routes, checks, metrics, preparation
    routes: str = ""  # a litestar.Router with more routes for the admin API, each with its `role`
    checks: str = ""  # async (app) -> findings, for `redrive doctor`
    metrics: str = ""  # (app, metrics) -> None: adds to what `redrive up` answers on /metrics
    rules: str = (
        ""  # `package:file` with rules for Prometheus: `redrive alert-rules` and `redrive NAME alert-rules` print it
    )
    panels: str = ""  # a redrive.telemetry.panels.Row: its part of `redrive dashboard`
    prepare: str = ""  # (settings) -> settings, before `redrive up` opens anything
    formats: tuple[Format, ...] = ()
    bodies: Mapping[str, str] = field(default_factory=dict)  # a transport -> (letter) -> Decoded or None
    transports: Mapping[str, str] = field(default_factory=dict)  # scheme of a URL -> its opener, as in registry.py
    stores: Mapping[str, str] = field(default_factory=dict)


def resolved(target: str, extra: str = "") -> Any:
    """What `module:attribute` names, imported now. MissingExtra if a library of that extra is not installed."""
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("redrive"):
            raise
        from redrive.errors import MissingExtra

        raise MissingExtra(module.rpartition(".")[0] or module, extra) from error


def exports(package: str, homes: Mapping[str, tuple[str, ...]], extra: str = "") -> Callable[[str], Any]:
    """A `__getattr__` for a package: each public name is imported from its module when it is first used.

    A system's descriptor and settings lie in its package, and are read before it is known whether the libraries of the
    system are installed.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def found(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return resolved(f"{package}.{home_of[name]}:{name}", extra)

    return found
