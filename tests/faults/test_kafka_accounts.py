"""Workers on Kafka that are killed again and again: nothing is lost, and a kill repeats no more than was in hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks.accounts.account import account

from tests.servers.kafka import Kafka
from tests.trouble.kafka import Topic


async def test_a_kill_repeats_no_more_than_a_worker_holds(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server, partitions=6)
    url = topic.url(counters=f"sqlite:///{tmp_path}/counters.db")
    found = await account("kafka", url, tmp_path, source=topic.name, messages=4000, kills=4, batch=50, seed=26)
    assert (found.lost, found.left, found.crashed) == (0, 0, 0)
    assert found.letters == 40
    assert found.most_repeats <= 2 * 50
