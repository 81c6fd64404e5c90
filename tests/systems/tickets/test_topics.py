"""The two topics on a cluster of three, made with the document's settings, and every difference of others said."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from redrive.testing.waiting import until
from tests.cli.world import Shell
from tests.servers.kafka import Kafka
from tests.trouble.kafka import admin


def test_topics_are_made_as_the_document_says_and_what_differs_is_reported(
    kafka_cluster: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"execution.tickets.{os.getpid()}"
    monkeypatch.chdir(tmp_path)
    for key, value in {
        "KAFKA": f"kafka://{kafka_cluster.bootstrap}",
        "TOPIC": name,
        "DLQ_TOPIC": f"{name}.dlq",
    }.items():
        monkeypatch.setenv(f"REDRIVE_TICKETS_{key}", value)
    shell = Shell(tmp_path)
    assert "there is no such topic" in shell("tickets", "topics", "--check", code=1).stdout
    assert shell.json("tickets", "topics")["created"] == [name, f"{name}.dlq"]
    assert shell.json("tickets", "topics", "--check") == {
        **shell.json("tickets", "topics", "--dry-run"),
        "created": [],
        "differences": [],
    }

    def replicas() -> list[int]:
        found = admin(kafka_cluster.bootstrap).list_topics(f"{name}.dlq", timeout=10).topics[f"{name}.dlq"]
        return [len(one.replicas) for one in found.partitions.values()]

    asyncio.run(until(lambda: replicas() == [3, 3, 3], what="the broker that is asked knows of it"))

    other = f"{name}.other"
    config = {"retention.ms": "1000", "compression.type": "gzip", "max.message.bytes": "1000"}
    new = NewTopic(other, 2, 2, config={**config, "min.insync.replicas": "1"})
    admin(kafka_cluster.bootstrap).create_topics([new])[other].result()
    monkeypatch.setenv("REDRIVE_TICKETS_DLQ_TOPIC", other)
    assert shell.json("tickets", "topics")["differences"] == [
        f"{other}: partitions is 2, wanted 3",
        f"{other}: replicas is 2, wanted 3",
        f"{other}: retention.ms is 1000, wanted 2592000000",
        f"{other}: compression.type is gzip, wanted snappy",
        f"{other}: max.message.bytes is 1000, wanted 2097152",
    ]
    monkeypatch.setenv("REDRIVE_TICKETS_REPLICAS", "4")
    monkeypatch.setenv("REDRIVE_TICKETS_TOPIC", f"{name}.four")
    assert "REDRIVE_TICKETS_REPLICAS" in shell("tickets", "topics", code=2).stderr
