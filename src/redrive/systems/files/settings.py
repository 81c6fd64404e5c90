"""The section `files` of the settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Struct

from redrive.config.settings import TICK, About


class FilesSettings(Struct, frozen=True, kw_only=True):
    """File processing on RabbitMQ (`redrive files`): its broker, its retries, its dead-letter queues."""

    url: Annotated[str | None, About("The RabbitMQ that files go through: amqp://…", least=1)] = None
    management: Annotated[str | None, About("Its management API; by default port 15672 of the same host", 1)] = None
    delay: Annotated[timedelta, About("How long a failed message waits in q.X.retry", least=TICK)] = timedelta(
        seconds=15
    )
    retries: Annotated[int, About("How often a message is retried before it is dead", least=0, most=1000)] = 3
    kind: Annotated[str, About("The kind of its queues", choices=("classic", "quorum"))] = "classic"
    concurrency: Annotated[int, About("How many messages of a queue a worker handles at once", 1, 10_000)] = 10
    prefetch: Annotated[int, About("How many messages the broker sends ahead", least=1, most=65_535)] = 200
    queues: Annotated[tuple[str, ...], About("The dead-letter queues that may be looked at and re-driven")] = tuple(
        f"q.{name}.dlq"
        for name in ("upload.commands", "validator", "thumbnail", "extractor", "projection", "notification", "audit")
    )
