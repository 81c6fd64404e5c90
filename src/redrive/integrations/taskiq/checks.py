"""What `redrive doctor` looks at: whether letters can go back, and what a queue loses when a worker is killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive.app import Redrive
from redrive.doctor.findings import Finding, warning
from redrive.integrations.checking import away, lost_ways, samples_of, ways_back
from redrive.integrations.taskiq.places import KIND
from redrive.integrations.taskiq.system import system
from redrive.model import Letter

if TYPE_CHECKING:
    from redrive.integrations.taskiq.transport import TaskiqRedis

_LIST = (
    "is a list (ListQueueBroker): a worker takes a task out of it before it runs it, so a worker that is killed loses"
    " its tasks, and nothing can make letters of them"
)
_ALONE = "is a stream that no group of workers reads: what is sent back to it waits until one does"


async def examine(app: Redrive) -> list[Finding]:
    """Nothing is changed."""
    found = await lost_ways(app, "taskiq", "taskiq+redis")
    names = ways_back(app, system.transports)
    if not names:  # then its libraries need not be installed
        return found
    from redrive.integrations.taskiq.transport import TaskiqRedis

    for name in names:
        unreachable = await away(app, name)
        transport = app.transport(name)
        found += unreachable
        if not unreachable and isinstance(transport, TaskiqRedis):
            found += await _queues(transport, name, await samples_of(app, name))
    return found


async def _queues(transport: TaskiqRedis, name: str, letters: Sequence[Letter]) -> list[Finding]:
    about, found = f"transports.{name}", []
    lists = {letter.message.source for letter in letters if letter.message.header(KIND) == b"list"}
    for source, type in (await transport.types_of([letter.message.source for letter in letters])).items():
        if source in lists:
            found.append(warning(about, f"queue {source!r} {_LIST}", "use RedisStreamBroker, which acknowledges"))
        elif type == "stream" and not await transport.link.command("XINFO", "GROUPS", source):
            found.append(warning(about, f"queue {source!r} {_ALONE}", "start a worker"))
    return found
