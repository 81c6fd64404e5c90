"""Who asks or acts: a token, a person, or somebody who has the store itself, with a role and what it reaches.

Every act names its actor, and every question is answered as far as the actor's scope reaches. Pure: nothing here asks a
store.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase

from msgspec import Struct


class Role(StrEnum):
    """What somebody may do; each may do what those before it may."""

    VIEWER = "viewer"  # see everything that is shown
    OPERATOR = "operator"  # retry, archive, replay
    ADMIN = "admin"  # tokens, the audit trail

    def allows(self, needed: Role) -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


class Scope(Struct, frozen=True, omit_defaults=True):
    """What an actor reaches: letters whose source, tenant and system it names. What a field leaves empty is not
    narrowed. A pattern is a shell's: `mail.*`."""

    sources: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether nothing is out of it."""
        return not (self.sources or self.tenants or self.systems)

    def has(self, *, source: str, tenant: str, system: str = "") -> bool:
        """Whether a letter of these is in it."""
        asked = ((self.sources, source), (self.tenants, tenant), (self.systems, system))
        return all(
            not patterns or any(fnmatchcase(value, pattern) for pattern in patterns) for patterns, value in asked
        )


EVERYTHING = Scope()


class Via(StrEnum):
    """How an actor came in."""

    TOKEN = "token"  # noqa: S105
    PERSON = "person"  # of an identity provider
    STORE = "store"  # a command line on the database itself: a direct access, whoever the system says it is
    REDRIVE = "redrive"  # by itself, as a rule of somebody's asked for


class Actor(Struct, frozen=True, kw_only=True):
    """Who asks or acts."""

    id: str  # of the token, or issuer and subject of the person: what "never the same one" compares
    name: str
    role: Role
    via: Via
    scope: Scope = EVERYTHING
    may_unmask: bool = False

    def __str__(self) -> str:
        """As the audit trail and the page show it."""
        return f"{self.name} ({self.id})" if self.id else self.name
