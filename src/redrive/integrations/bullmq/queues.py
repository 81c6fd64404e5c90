"""The queues of BullMQ that a Redis holds, and how they stand."""

from __future__ import annotations

from msgspec import Struct

from redrive.integrations.bullmq.jobs import options_of
from redrive.integrations.bullmq.keys import GROUP, Keys, fields_of
from redrive.integrations.bullmq.transport import BullTransport

_SUFFIX = ":meta"
_AT_ONCE = 1000
_SAMPLE = 20


class BullQueue(Struct, frozen=True):
    """One queue.

    watched   whether a watcher has ever followed it
    removes   a job of it that BullMQ deletes when it fails: how it says so
    """

    name: str
    failed: int
    waiting: int
    active: int
    watched: bool
    removes: str = ""


async def queues_of(transport: BullTransport) -> list[BullQueue]:
    """Every queue that has the prefix of that transport, by name."""
    names = sorted(set(await _names(transport)))
    return [await _queue(transport, transport.keys(name)) for name in names]


async def _names(transport: BullTransport) -> list[str]:
    start, found, cursor = f"{transport.prefix}:", list[str](), b"0"
    while True:
        cursor, keys = await transport.link.command("SCAN", cursor, "MATCH", f"{start}*{_SUFFIX}", "COUNT", _AT_ONCE)
        found += [key.decode("utf-8", "replace")[len(start) : -len(_SUFFIX)] for key in keys]
        if int(cursor) == 0:
            return found


async def _queue(transport: BullTransport, keys: Keys) -> BullQueue:
    counts = (("ZCARD", keys.failed), ("LLEN", f"{keys.base}wait"), ("LLEN", f"{keys.base}active"))
    failed, waiting, active = await transport.link.commands(counts)
    exists = await transport.link.command("EXISTS", keys.events)
    groups = await transport.link.command("XINFO", "GROUPS", keys.events) if exists else []
    watched = any(_group_name(group) == GROUP for group in groups)
    return BullQueue(keys.queue, int(failed), int(waiting), int(active), watched, await _removes(transport, keys))


def _group_name(group: object) -> str:
    name = fields_of(group).get("name", b"")
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


async def _removes(transport: BullTransport, keys: Keys) -> str:
    """What a few of its jobs say of their deletion when they fail; empty, if they are kept."""
    ranges = [("LRANGE", f"{keys.base}{name}", 0, _SAMPLE) for name in ("wait", "active")]
    ranges += [("ZRANGE", f"{keys.base}{name}", 0, _SAMPLE) for name in ("failed", "completed", "prioritized")]
    found = [id.decode("utf-8", "replace") for ids in await transport.link.commands(ranges) for id in ids]
    if not found:
        return ""
    for answer in await transport.link.commands([("HGETALL", keys.job(id)) for id in found]):
        value = options_of(fields_of(answer)).get("removeOnFail", False)
        if value is not False:
            return f"removeOnFail: {str(value).lower() if isinstance(value, bool) else value}"
    return ""
