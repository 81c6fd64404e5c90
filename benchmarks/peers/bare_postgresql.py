"""The least that a queue in PostgreSQL can do: COPY in, lease 500 by `UPDATE … SKIP LOCKED RETURNING`, delete them.

One table with what a queue cannot do without: an order, a priority, a lease and a body, and the index to find the next
by. No ids, no duplicates refused, nobody woken, no attempts counted, no limits, and nothing survives a lost answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import psycopg

BATCH = 500
_TABLE = """
CREATE TABLE IF NOT EXISTS bare (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, priority integer NOT NULL,
    lease bigint, until timestamptz, attempt integer NOT NULL DEFAULT 0, body bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS bare_ready ON bare (queue, priority, place);
"""
_LEASE = b"""
UPDATE bare SET lease = %s, until = now() + interval '30 s', attempt = attempt + 1
WHERE place = ANY (ARRAY(
    SELECT place FROM bare WHERE queue = %s AND (until IS NULL OR until <= now())
    ORDER BY priority, place LIMIT %s FOR UPDATE SKIP LOCKED))
RETURNING place, body
"""


class Bare:
    """One connection that does one thing after the other."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Bare:
        self._connection: Any = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        await self._connection.execute(_TABLE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def add(self, bodies: Sequence[bytes]) -> None:
        """All of them, 500 a COPY."""
        for start in range(0, len(bodies), BATCH):
            async with (
                self._connection.cursor() as cursor,
                cursor.copy("COPY bare (queue, priority, body) FROM STDIN (FORMAT binary)") as copy,
            ):
                copy.set_types(["text", "int4", "bytea"])
                for body in bodies[start : start + BATCH]:
                    await copy.write_row(("orders", 0, body))

    async def drain(self) -> int:
        """Until nothing is left; how many there were."""
        total = 0
        while True:
            lease = secrets.randbits(62)
            async with self._connection.cursor(binary=True) as cursor:
                await cursor.execute(_LEASE, (lease, "orders", BATCH))
                rows = await cursor.fetchall()
            if not rows:
                return total
            places = [place for place, _ in rows]
            await self._connection.execute("DELETE FROM bare WHERE place = ANY (%s) AND lease = %s", (places, lease))
            total += len(rows)
