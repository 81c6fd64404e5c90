"""The settings of the tickets under the names that their contract gives them: a YAML file and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from redrive.config.aliases import Aliases, with_aliases
from redrive.config.settings import Settings

_CONTRACT = Aliases(
    table="kafka.dlq",
    file={
        "enabled": "tickets.dlq_enabled",
        "topic": "tickets.dlq_topic",
        "maxRetriesBeforeDLQ": "tickets.max_retries",
    },
    environ={
        "KAFKA_DLQ_TOPIC": "tickets.dlq_topic",
        "KAFKA_MAX_RETRIES_BEFORE_DLQ": "tickets.max_retries",
    },
)


def with_values(settings: Settings, values: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Our settings, with `kafka.dlq.*` of that YAML file over them, and the environment over both."""
    return with_aliases(settings, _CONTRACT, values, environ)
