"""FastStream on aiokafka, a message at a time: acked first (its fastest way; a crash loses), or each when done.

It is stopped after so many messages: its rate is steady. Joining the group is left out, to its advantage.
"""

from __future__ import annotations

import logging
from typing import Any

from benchmarks.harness import in_loop
from benchmarks.peers import needed
from benchmarks.peers.faststream_run import first_to_last


def rate(
    servers: str, topic: str, group: str, total: int, wait: float, policy: str, workers: int | None = None
) -> float:
    """Messages a second."""
    return in_loop(_rate(servers, topic, group, total, wait, policy, workers))


async def _rate(
    servers: str, topic: str, group: str, total: int, wait: float, policy: str, workers: int | None
) -> float:
    broker = needed("faststream.kafka").KafkaBroker(servers, logger=None, log_level=logging.CRITICAL)
    options: dict[str, Any] = {} if workers is None else {"max_workers": workers}
    subscriber = broker.subscriber(
        topic,
        group_id=group,
        auto_offset_reset="earliest",
        ack_policy=needed("faststream").AckPolicy(policy),
        **options,
    )
    return await first_to_last(broker, subscriber, total, wait)
