"""Who acts, in benchmarks."""

from __future__ import annotations

from redrive.access.actors import Actor, Role, Via


def acting(name: str) -> Actor:
    """Somebody of that name, with the store in hand."""
    return Actor(id="", name=name, role=Role.ADMIN, via=Via.STORE)
