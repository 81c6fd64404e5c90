"""Who asks or acts: a token, a person, or somebody who has the store itself, with a role and what it reaches.

Every act names its actor, and every question is answered as far as the actor's scope reaches. Pure: nothing here asks a
store.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from redrive.forensics.scope import EVERYTHING, Scope

__all__ = ["EVERYTHING", "Actor", "Role", "Scope", "Via"]


class Role(StrEnum):
    """What somebody may do; each may do what those before it may."""

    VIEWER = "viewer"  # see everything that is shown
    OPERATOR = "operator"  # retry, archive, replay
    ADMIN = "admin"  # tokens, the audit trail

    def allows(self, needed: Role) -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


BESIDE = " (cli)"
"""What the name of a user of the system ends with, who has the store itself."""


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
