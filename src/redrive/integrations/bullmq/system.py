"""The descriptor of the integration with BullMQ: what the core knows of it."""

from redrive.systems.base import Format, System

_SCHEMES = ("bullmq+redis", "bullmq+rediss", "bullmq+redis+cluster", "bullmq+rediss+cluster")

system = System(
    name="bullmq",
    about="BullMQ: the failed jobs of Node's queues as letters",
    extra="bullmq",
    command="redrive.integrations.bullmq.commands:bullmq",
    checks="redrive.integrations.bullmq.checks:examine",
    formats=(
        Format(
            name="bullmq",
            reader="redrive.integrations.bullmq.reading:BullReader",
            about="the failed jobs of a queue of BullMQ",
            schemes=_SCHEMES,
            topic=".*",
            transport="bullmq",
        ),
    ),
    transports=dict.fromkeys(_SCHEMES, "redrive.integrations.bullmq.transport:open_transport"),
)
