"""Queues of a test's own on a shared ElasticMQ, and a client as others use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from aiobotocore.session import get_session  # type: ignore[import-untyped]

from tests.servers.elasticmq import ElasticMQ


def new_prefix() -> str:
    return f"p{uuid4().hex[:12]}-"


def private_url(server: ElasticMQ, options: str = "", prefix: str = "") -> str:
    """A URL whose queues nobody else uses."""
    return f"{server.url}&prefix={prefix or new_prefix()}&wait=1s{options}"


@asynccontextmanager
async def others_client(server: ElasticMQ) -> AsyncIterator[Any]:
    """The client that everybody else uses."""
    made = get_session().create_client(
        "sqs",
        endpoint_url=server.endpoint,
        region_name="elasticmq",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    async with made as client:
        yield client
