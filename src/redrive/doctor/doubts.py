"""What a backend says is wrong with its own server: settings that lose something, rights that are missing."""

from __future__ import annotations

from redrive.doctor.findings import Finding, failure, warning
from redrive.errors import RedriveError
from redrive.stores.base import HasDoubts


async def doubts(about: str, backend: object, *, said: str = "") -> list[Finding]:
    """Each doubt of a backend that has some and was not `said` yet; nothing for any other, nor for one that does not
    answer."""
    if not isinstance(backend, HasDoubts):
        return []
    try:
        found = await backend.doubts()
    except RedriveError:  # that it does not answer is said already
        return []
    return [
        (failure if doubt.is_failure else warning)(about, f"the server {doubt.text}", doubt.mend)
        for doubt in found
        if doubt.mend not in said
    ]
