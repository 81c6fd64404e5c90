"""Tasks that wait for others: a circle would wait for ever, and an id that nobody knows is no reason to wait."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from redrive.model import OPEN, Letter
from redrive.systems.workflow.errors import DependencyCycle

log = logging.getLogger("redrive.workflow")
_MOST_LOOKED_AT = 1000
Find = Callable[[str], Awaitable[Letter | None]]


async def check_dependencies(task_id: str, after: Sequence[str], find: Find) -> None:
    """Raise DependencyCycle if the task would wait for itself; warn of ids that are not in the queue."""
    ways: list[tuple[str, ...]] = [(task_id, name) for name in after]
    seen: set[str] = set()
    unknown = []
    while ways and len(seen) < _MOST_LOOKED_AT:
        way = ways.pop(0)
        name = way[-1]
        if name == task_id:
            raise DependencyCycle(way)
        if name in seen:
            continue
        seen.add(name)
        letter = await find(name)
        if letter is None and len(way) == 2:
            unknown.append(name)
        if letter is not None and letter.state in OPEN:
            ways += [(*way, other) for other in letter.depends_on]
    if unknown:
        log.warning(
            "task %r is to wait for %s, which the queue does not know: it is retried without waiting for that, unless "
            "it is enqueued until then",
            task_id,
            ", ".join(map(repr, unknown)),
        )
