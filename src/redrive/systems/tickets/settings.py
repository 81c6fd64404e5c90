"""The section `tickets` of the settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from redrive.config.settings import About


class TicketSettings(Struct, frozen=True, kw_only=True):
    """The ticket worker on Kafka (`redrive tickets`): its topics, its counters, its forensics."""

    kafka: Annotated[str, About("The Kafka of the tickets", least=1)] = "kafka://127.0.0.1:9092"
    redis: Annotated[str, About("Where retries are counted: redis://…, sqlite:///… or memory://", 1)] = (
        "redis://127.0.0.1:6379/0"
    )
    mongodb: Annotated[str, About("The MongoDB that keeps dead tickets", least=1)] = (
        "mongodb://127.0.0.1:27017/neural_hive"
    )
    topic: Annotated[str, About("The topic of tickets", least=1)] = "execution.tickets"
    dlq_enabled: Annotated[bool, About("Publish dead tickets to the DLQ topic; otherwise they are letters only")] = True
    dlq_topic: Annotated[str, About("The topic of dead tickets", least=1)] = "execution.tickets.dlq"
    group: Annotated[str, About("The consumer group of workers; the DLQ's is the same with `-dlq`", least=1)] = (
        "worker-agents"
    )
    max_retries: Annotated[int, About("How often a ticket may fail before it is dead", least=1, most=1000)] = 3
    partitions: Annotated[int, About("Partitions of the topic of tickets, if we create it", 1, 10_000)] = 6
    replicas: Annotated[int, About("Replicas of topics that we create", least=1, most=100)] = 3
    concurrency: Annotated[int, About("How many tickets a worker handles at once", least=1, most=10_000)] = 50
