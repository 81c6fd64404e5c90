"""`python -m tests.fuzz --cases 20000`: hostile messages through every stage, and a table of what came of them."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz import stages
from tests.fuzz.rows import Row, table
from tests.servers.kafka import Kafka
from tests.servers.mongodb import MongoDB
from tests.servers.opensearch import OpenSearch
from tests.servers.pool import ServerPool
from tests.servers.postgresql import PostgreSQL
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

_ON = {
    "kafka": (Kafka, stages.on_kafka),
    "rabbitmq": (RabbitMQ, stages.on_rabbitmq),
    "redis": (Redis, stages.on_redis),
    "mongodb": (MongoDB, stages.on_mongodb),
    "opensearch": (OpenSearch, stages.on_opensearch),
    "postgresql": (PostgreSQL, stages.on_postgresql),
}


def main() -> int:
    options = _parser().parse_args()
    logging.disable(logging.CRITICAL)  # every stumble is logged, and they are many
    cases = stages.cases_of(options.seed, options.cases, largest=options.largest)
    pool = ServerPool()
    try:
        with tempfile.TemporaryDirectory() as place:
            rows = [_row(stage) for stage in _stages(Path(place), cases, options.only, pool)]
    finally:
        pool.discard()
    print(table(rows))
    return 0 if all(row.is_clean for row in rows) else 1


def _stages(place: Path, cases: stages.Cases, only: list[str], pool: ServerPool) -> Iterator[stages.Stage]:
    if not only or "none" in only:
        yield from stages.without_servers(place, cases)
    for name, (server, made) in _ON.items():
        if not only or name in only:
            yield from made(pool.private(server), cases)  # type: ignore[operator]


def _row(stage: stages.Stage) -> Row:
    made = stage()
    row = made if isinstance(made, Row) else asyncio.run(made)  # type: ignore[arg-type]
    print(table([row]).splitlines()[1], file=sys.stderr, flush=True)
    return row


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--largest", type=int, default=1_000_000, help="bytes of a body (Kafka takes about 1 MB)")
    parser.add_argument("--only", action="append", default=[], choices=["none", *_ON], help="stages on that server")
    return parser


if __name__ == "__main__":
    sys.exit(main())
