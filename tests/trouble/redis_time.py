"""Time that passes at once on a Redis: whatever has a time in it comes nearer."""

from __future__ import annotations

from datetime import timedelta

from redrive.drivers.redis import Link


async def let_time_pass(url: str, span: timedelta) -> None:
    """For the queues under that URL's prefix, as if so much time had passed on the server."""
    link = Link(url)
    try:
        milliseconds = span // timedelta(milliseconds=1)
        for queue in await _queues(link):
            for name in ("leases", "delayed"):
                for member in await link.command("ZRANGEBYSCORE", f"{queue}:{name}", "-inf", "(inf"):
                    await link.command("ZINCRBY", f"{queue}:{name}", -milliseconds, member)
            if await link.command("HEXISTS", f"{queue}:terms", "paused_until"):
                await link.command("HINCRBY", f"{queue}:terms", "paused_until", -milliseconds)
            await _age_the_rate(link, queue, milliseconds)
            await link.command("RPUSH", f"{queue}:wake", 1)  # who waits looks at the times again
    finally:
        await link.aclose()


async def _queues(link: Link) -> list[str]:
    prefix = link.address.prefix
    return [f"{prefix}:{{{name.decode()}}}" for name in await link.command("SMEMBERS", f"{prefix}:sources")]


async def _age_the_rate(link: Link, queue: str, milliseconds: int) -> None:
    for place, entry in enumerate(await link.command("LRANGE", f"{queue}:starts", 0, -1)):
        at, number = entry.split(b":")
        await link.command("LSET", f"{queue}:starts", place, f"{int(at) - milliseconds}:{int(number)}")
    for field in ("cut", "raised"):
        if await link.command("HEXISTS", f"{queue}:rate", field):
            await link.command("HINCRBY", f"{queue}:rate", field, -milliseconds)
