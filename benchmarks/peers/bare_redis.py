"""Bare redis-py with hiredis and two Lua scripts: lease 500 jobs, handle them one after the other, delete them.

The same work in Redis as ours: a key of a hash for each job, a lease with its end and its owner, which is looked at
before the job is deleted. One round trip deletes a batch and leases the next. Nothing else: no retries, no letters, no
tenants or priorities, no renewal of leases, and nobody else's leases are taken over when they end.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from benchmarks.peers import needed
from benchmarks.redis_child import BULK, Handle, Order, Task, bulks, main

_LEASE_MS = 60_000
_LONG = "-" * 65  # small sets are kept as lists that are searched from the front; one long member makes them tables
_numbers = count()  # ids that sort as they come, as ours do
# KEYS 1 hash of jobs, 2 list of ids that wait. ARGV an id and a body for each
_ADD = """
local ids = {}
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], unpack(ARGV))
redis.call('RPUSH', KEYS[2], unpack(ids))
"""
# KEYS 1 jobs, 2 ids, 3 zset of leases by their end, 4 hash of id -> owner. ARGV 1 how many, 2 owner, 3 milliseconds
_LEASE = """
local ids = redis.call('LPOP', KEYS[2], ARGV[1])
if not ids then return {} end
local time = redis.call('TIME')
local ends, owners = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], {}
local leases = {}
for i, id in ipairs(ids) do
  leases[2 * i - 1], leases[2 * i] = ends, id
  owners[2 * i - 1], owners[2 * i] = id, ARGV[2]
end
redis.call('ZADD', KEYS[3], unpack(leases))
redis.call('HSET', KEYS[4], unpack(owners))
return {ids, redis.call('HMGET', KEYS[1], unpack(ids))}
"""
# KEYS 1 jobs, 2 leases, 3 owners. ARGV 1 owner, then the ids
_DELETE = """
local ids = {}
for i = 2, #ARGV do ids[i - 1] = ARGV[i] end
for _, owner in ipairs(redis.call('HMGET', KEYS[3], unpack(ids))) do
  if owner ~= ARGV[1] then return redis.error_reply('not ours any more') end
end
redis.call('HDEL', KEYS[1], unpack(ids))
redis.call('HDEL', KEYS[3], unpack(ids))
redis.call('ZREM', KEYS[2], unpack(ids))
"""


class Bare:
    def __init__(self, task: Task) -> None:
        # without a timeout of its own, which in Python 3.11 can swallow the end of the warm-up
        self._redis: Any = needed("redis.asyncio").Redis.from_url(task.url, socket_timeout=None)

    async def add(self, queue: str, orders: Sequence[Order]) -> None:
        add = await self._redis.script_load(_ADD)
        for some in bulks(orders):
            jobs = [part for order in some for part in (f"{next(_numbers):026d}", msgspec.json.encode(order))]
            await self._redis.evalsha(add, 2, f"{queue}:jobs", f"{queue}:waiting", *jobs)

    async def work(self, queue: str, handle: Handle) -> None:
        lease, delete = [await self._redis.script_load(text) for text in (_LEASE, _DELETE)]
        jobs, waiting, leases, owners = (f"{queue}:{part}" for part in ("jobs", "waiting", "leases", "owners"))
        me = uuid.uuid4().hex
        ids: list[bytes] = []
        await self._redis.zadd(leases, {_LONG: "+inf"})
        await self._redis.hset(owners, _LONG, "")
        while True:
            async with self._redis.pipeline(transaction=False) as pipeline:
                if ids:
                    pipeline.evalsha(delete, 3, jobs, leases, owners, me, *ids)
                pipeline.evalsha(lease, 4, jobs, waiting, leases, owners, BULK, me, _LEASE_MS)
                *_, leased = await pipeline.execute()
            ids, bodies = leased or ([], [])
            for body in bodies:
                handle(msgspec.json.decode(body))
            if not ids:
                await asyncio.sleep(0.005)  # before and after what is measured


def unsettled(redis: Any) -> int:
    """How many jobs wait or run."""
    return int(redis.hlen("jobs:jobs"))


if __name__ == "__main__":
    main(Bare)
