"""Alert rules for Prometheus: several files of them as one, each with its comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pkgutil import get_data

from redrive.errors import UsageError

CORE = "redrive.telemetry:rules.yml"
_GROUPS = re.compile(r"^groups:[ \t]*(?:#.*)?$", re.MULTILINE)
_ITEM = re.compile(r"^( *)- ", re.MULTILINE)
_INDENT = 2


def text_of(place: str) -> str:
    """The file of `package:file`."""
    package, _, name = place.partition(":")
    try:
        return (get_data(package, name) or b"").decode()
    except (OSError, ImportError, ValueError) as error:
        raise UsageError(f"the rules {place} cannot be read: {error}") from error


def joined(parts: Iterable[tuple[str, str]]) -> str:
    """One file of rules of many, given by their names and texts. Prometheus reads one `groups` of a file, no more."""
    heads, bodies = list[str](), list[str]()
    for name, text in parts:
        head, body = _parts(name, text)
        heads.append(head)
        bodies.append(body)
    return "\n".join([*filter(None, heads), "groups:", *bodies]) + "\n"


def _parts(name: str, text: str) -> tuple[str, str]:
    """The comment at its top, and its groups, indented as ours are."""
    found = _GROUPS.search(text)
    first = _ITEM.search(text, found.end()) if found else None
    if found is None or first is None:
        raise UsageError(f"the rules of {name} cannot be joined with others: they do not begin with a line `groups:`")
    return text[: found.start()].strip(), "\n".join(_indented(text[found.end() :].strip("\n"), _INDENT - len(first[1])))


def _indented(body: str, more: int) -> Iterator[str]:
    """The lines moved to the right, or to the left as far as they have spaces there."""
    for line in body.splitlines():
        spaces = len(line) - len(line.lstrip(" "))
        yield " " * max(spaces + more, 0) + line.lstrip(" ")
