"""The descriptor of RQ: what the core knows of it."""

from redrive.systems.base import Format, System

system = System(
    name="rq",
    about="RQ: its failed jobs as letters, requeued by a replay",
    extra="rq",
    checks="redrive.integrations.rq.checks:examine",
    formats=(
        Format(
            name="rq",
            about="the FailedJobRegistry of a queue of RQ",
            reader="redrive.integrations.rq.reader:RqReader",
            schemes=("rq+redis", "rq+rediss"),
            topic=r".+",
            transport="rq",
        ),
    ),
    transports={
        "rq+redis": "redrive.integrations.rq.transport:open_transport",
        "rq+rediss": "redrive.integrations.rq.transport:open_transport",
    },
)
