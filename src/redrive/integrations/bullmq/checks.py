"""What `redrive doctor` looks at: whether jobs can go back, whether somebody watches, and what BullMQ deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.app import Redrive
from redrive.doctor.findings import Finding, warning
from redrive.integrations.bullmq.system import system
from redrive.integrations.checking import away, lost_ways, ways_back

if TYPE_CHECKING:
    from redrive.integrations.bullmq.queues import BullQueue
    from redrive.integrations.bullmq.transport import BullTransport

_MOST_NAMED = 5


async def examine(app: Redrive) -> list[Finding]:
    """Nothing is changed."""
    found = await lost_ways(app, "bullmq", "bullmq+redis")
    names = ways_back(app, system.transports)
    if not names:  # then its libraries need not be installed
        return found
    from redrive.integrations.bullmq.queues import queues_of
    from redrive.integrations.bullmq.transport import BullTransport

    for name in names:
        unreachable = await away(app, name)
        found += unreachable
        transport = app.transport(name)
        if not unreachable and isinstance(transport, BullTransport):
            found += _findings(f"transports.{name}", transport, await queues_of(transport))
    return found


def _findings(about: str, transport: BullTransport, queues: list[BullQueue]) -> list[Finding]:
    if not queues:
        text = f"no queue of BullMQ begins with {transport.prefix!r} in this Redis"
        return [warning(about, text, "correct the URL, or its `prefix`")]
    found = []
    if unwatched := [queue.name for queue in queues if not queue.watched]:
        text = f"nobody has ever watched {_named(unwatched)}: what becomes of a replay is not known, and new failures"
        found.append(warning(about, f"{text} are no letters", f"`redrive bullmq watch {unwatched[0]}`"))
    for queue in queues:
        if queue.removes:
            text = (
                f"jobs of {queue.name!r} are deleted when they fail ({queue.removes}): no letter, unless they are"
                " watched; with `true` even then without their data"
            )
            found.append(warning(about, text, "keep some: removeOnFail: { count: 1000 }, or leave it out"))
    return found


def _named(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(map(repr, names[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
