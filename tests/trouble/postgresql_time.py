"""Time that passes at once on a PostgreSQL: whatever has a time in it comes nearer."""

from __future__ import annotations

from datetime import timedelta

import psycopg

_STATEMENTS = (
    "UPDATE redrive.queue SET until = until - %(span)s, due = due - %(span)s",
    "UPDATE redrive.queue_running SET until = until - %(span)s",
    "UPDATE redrive.queue_sources SET paused_until = paused_until - %(span)s, "
    "cut_at = cut_at - %(span)s, raised_at = raised_at - %(span)s, "
    "starts = ARRAY(SELECT at - %(span)s FROM unnest(starts) WITH ORDINALITY AS u (at, n) ORDER BY n)",
    "SELECT pg_notify('redrive', 'queue:' || no) FROM redrive.queue_sources",
)


async def let_time_pass(url: str, span: timedelta) -> None:
    """For the queue of that database, as if so much time had passed on the server."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for statement in _STATEMENTS:
            await connection.execute(statement.encode(), {"span": span // timedelta(microseconds=1)})
