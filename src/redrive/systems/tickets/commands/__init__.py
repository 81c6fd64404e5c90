"""`redrive tickets`: the ticket worker on Kafka."""

from __future__ import annotations

import click

from redrive.cli.lazy import common
from redrive.systems.tickets.commands.query import query
from redrive.systems.tickets.commands.recovery import purge, republish
from redrive.systems.tickets.commands.topics import topics
from redrive.systems.tickets.commands.workers import dlq_consumer, worker


@click.group()
@common
def tickets() -> None:
    """Execution tickets on Kafka: in order for each ticket, retries counted in Redis, dead ones in MongoDB.

    Settings are those of the section `tickets`: `redrive config` shows them. KAFKA_DLQ_TOPIC and
    KAFKA_MAX_RETRIES_BEFORE_DLQ are read too, and with --values the keys kafka.dlq.* of a YAML file.

    \b
    redrive tickets topics                      create the topics, and say how existing ones differ
    redrive tickets worker shop.tickets:handle  handle tickets; metrics are on port 8000
    redrive tickets dlq-consumer                bring dead tickets into MongoDB, and alert
    redrive tickets query --by error-type       why they died
    redrive tickets republish --error-type TimeoutError
    """


for _command in (topics, worker, dlq_consumer, query, republish, purge):
    tickets.add_command(_command)
