"""The descriptor of Dramatiq: what the core knows of it."""

from redrive.systems.base import Format, System

system = System(
    name="dramatiq",
    about="Dramatiq: its dead messages as letters, sent back to its queues",
    extra="dramatiq",
    checks="redrive.integrations.dramatiq.checks:examine",
    formats=(
        Format(
            name="dramatiq",
            about="a dead-letter queue of Dramatiq",
            reader="redrive.integrations.dramatiq.reader:DramatiqReader",
            schemes=("amqp", "amqps", "dramatiq+amqp", "dramatiq+amqps", "dramatiq+redis", "dramatiq+rediss"),
            topic=r".+\.XQ",
            transport="dramatiq",
        ),
    ),
    transports={
        "dramatiq+amqp": "redrive.integrations.dramatiq.over_amqp:open_transport",
        "dramatiq+amqps": "redrive.integrations.dramatiq.over_amqp:open_transport",
        "dramatiq+redis": "redrive.integrations.dramatiq.over_redis:open_transport",
        "dramatiq+rediss": "redrive.integrations.dramatiq.over_redis:open_transport",
    },
)
