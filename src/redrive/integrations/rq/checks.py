"""What `redrive doctor` looks at: failed jobs that RQ will forget, and jobs that nothing ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from redrive.app import Redrive
from redrive.doctor.findings import Finding, fine, warning
from redrive.errors import RedriveError
from redrive.integrations.rq.fields import Fields, text_in

_SHORT = timedelta(days=7)


async def examine(app: Redrive) -> list[Finding]:
    """Look at each transport of RQ that is configured. Nothing is made or changed."""
    found: list[Finding] = []
    for name, url in app.settings.transports.items():
        if url.startswith("rq+"):
            found += await _examined(f"transports.{name}", app.transport(name))
    return found


async def _examined(about: str, transport: object) -> list[Finding]:
    from redrive.integrations.rq.transport import RqTransport

    assert isinstance(transport, RqTransport)
    try:
        await transport.check()
    except RedriveError:  # the doctor says so itself
        return []
    found = [
        finding
        for queue in await transport.queues()
        for finding in _of_queue(about, queue, *await transport.failed(queue))
    ]
    return found or [fine(about, "no failed job lies in a queue of RQ")]


def _of_queue(about: str, queue: str, count: int, jobs: list[dict[str, bytes]]) -> Iterator[Finding]:
    if count:
        yield warning(
            about,
            f"{count:,} failed jobs lie in the registry of {queue}, and RQ forgets each when its failure_ttl is over",
            f"`redrive collect …/{queue}` makes letters of those that have none yet",
        )
    if any(0 <= (ttl := _number(job, "failure_ttl", 1 << 31)) < _SHORT.total_seconds() for job in jobs):
        yield warning(
            about,
            f"jobs of {queue} have a failure_ttl of {timedelta(seconds=ttl)}: what fails over a holiday is gone before "
            "anybody looks, and with it the results and dependents that a replay would go on with",
            "enqueue them with failure_ttl= of some weeks, or leave it out (a year)",
        )
    if any(_number(job, "timeout", 0) == -1 for job in jobs):
        yield warning(
            about,
            f"jobs of {queue} have no timeout (-1): one that hangs holds its worker for ever, and is never a letter",
            "enqueue them with job_timeout=",
        )


def _number(job: Fields, name: str, otherwise: int) -> int:
    text = text_in(job, name)
    return int(text) if text.lstrip("-").isdigit() and len(text) < 12 else otherwise
