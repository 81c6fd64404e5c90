"""What `redrive doctor` looks at: dead messages that Dramatiq will throw away, and what its broker could lose."""

from __future__ import annotations

from redrive.app import Redrive
from redrive.doctor.findings import Finding, fine, warning
from redrive.errors import RedriveError

_DAYS = "7 days after it died, if `dead_message_ttl` does not say otherwise"


async def examine(app: Redrive) -> list[Finding]:
    """Look at each transport of Dramatiq that is configured. Nothing is made or changed."""
    found: list[Finding] = []
    for name, url in app.settings.transports.items():
        if url.startswith("dramatiq+"):
            found += await _examined(app, name)
    return found


async def _examined(app: Redrive, name: str) -> list[Finding]:
    from redrive.integrations.dramatiq.over_amqp import DramatiqOverAmqp
    from redrive.integrations.dramatiq.over_redis import DramatiqOverRedis

    transport = app.transport(name)
    about = f"transports.{name}"
    assert isinstance(transport, DramatiqOverAmqp | DramatiqOverRedis)
    try:
        await transport.check()
    except RedriveError:  # the doctor says so itself
        return []
    try:
        dead = await transport.dead()
    except RedriveError as error:
        mend = "let the URL name RabbitMQ's management API (management=http://host:15672)"
        return [warning(about, f"how many dead messages lie in its .XQ queues is not known: {error}", mend)]
    lying = {queue: count for queue, count in dead.items() if count}
    if not lying:
        return [fine(about, "no dead message lies in a queue of Dramatiq")]
    return [
        warning(
            about,
            f"{count:,} dead messages lie in {queue}, and Dramatiq throws each away {_DAYS}",
            f"`redrive collect …/{queue}` makes letters of those that have none yet, and takes them out",
        )
        for queue, count in sorted(lying.items())
    ]
