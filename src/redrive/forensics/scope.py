"""What somebody reaches: letters by their source, tenant and system.

`Scope.has` is the reference: every store selects by a scope as it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

_WILD = frozenset("*?[")


class Scope(Struct, frozen=True, omit_defaults=True):
    """What an actor reaches: letters whose source, tenant and system it names. What a field leaves empty is not
    narrowed. A pattern is a shell's: `mail.*`. A letter without a tenant is in no pattern of tenants, not even `*`."""

    sources: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether nothing is out of it."""
        return not (self.sources or self.tenants or self.systems)

    def has(self, *, source: str, tenant: str | None, system: str = "") -> bool:
        """Whether a letter of these is in it."""
        asked = ((self.sources, source), (self.tenants, tenant), (self.systems, system))
        return all(not patterns or reaches(patterns, value) for patterns, value in asked)

    def covers(self, other: Scope) -> bool:
        """Whether nothing is in the other that is not in this one; false where that cannot be told of two patterns."""
        pairs = ((self.sources, other.sources), (self.tenants, other.tenants), (self.systems, other.systems))
        return all(not ours or (theirs and all(_covered(ours, name) for name in theirs)) for ours, theirs in pairs)


EVERYTHING = Scope()


def reaches(patterns: Iterable[str], value: str | None) -> bool:
    """Whether one of the patterns is of that value."""
    return bool(value) and any(fnmatchcase(value or "", pattern) for pattern in patterns)


def _covered(patterns: Iterable[str], name: str) -> bool:
    """Whether a pattern is of all that the name, or pattern, stands for: `mail.*` is of `mail.a` and of `mail.a*`."""
    return any(
        name == pattern
        or (_WILD.isdisjoint(name) and fnmatchcase(name, pattern))
        or (pattern.endswith("*") and _WILD.isdisjoint(pattern[:-1]) and name.startswith(pattern[:-1]))
        for pattern in patterns
    )


def exact(patterns: Iterable[str]) -> tuple[str, ...] | None:
    """The only names that the patterns can be of; None if one of them is of more than its own name."""
    names = tuple(dict.fromkeys(name for name in patterns if name))
    return names if all(_WILD.isdisjoint(name) for name in names) else None
