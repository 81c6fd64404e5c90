"""The descriptor of the integration with FastStream: what the core knows of it."""

from redrive.systems.base import System

_TRANSPORT = "redrive.integrations.faststream.transport"
_AMQP, _KAFKA, _REDIS = f"{_TRANSPORT}:open_amqp", f"{_TRANSPORT}:open_kafka", f"{_TRANSPORT}:open_redis"

system = System(
    name="faststream",
    about="FastStream: letters of its handlers, and the way back to them",
    extra="faststream",
    checks="redrive.integrations.faststream.checks:examine",
    transports={
        "faststream+amqp": _AMQP,
        "faststream+amqps": _AMQP,
        "faststream+kafka": _KAFKA,
        "faststream+kafka+ssl": _KAFKA,
        "faststream+redis": _REDIS,
        "faststream+rediss": _REDIS,
        "faststream+redis+cluster": _REDIS,
        "faststream+rediss+cluster": _REDIS,
    },
)
