"""Who acts, in tests."""

from __future__ import annotations

from redrive.access.actors import EVERYTHING, Actor, Role, Scope, Via


def acting(name: str = "me", *, role: Role = Role.ADMIN, scope: Scope = EVERYTHING) -> Actor:
    """Somebody of that name, who is shown by it alone."""
    return Actor(id="", name=name, role=role, via=Via.TOKEN, scope=scope, may_unmask=role is Role.ADMIN)
