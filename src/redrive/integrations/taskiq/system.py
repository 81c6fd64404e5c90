"""The descriptor of the integration with Taskiq: what the core knows of it."""

from redrive.systems.base import System

_REDIS, _AMQP = "redrive.integrations.taskiq.transport:open_redis", "redrive.integrations.taskiq.transport:open_amqp"

system = System(
    name="taskiq",
    about="Taskiq: letters of its workers, and the way back to them",
    extra="taskiq",
    checks="redrive.integrations.taskiq.checks:examine",
    transports={
        "taskiq+redis": _REDIS,
        "taskiq+rediss": _REDIS,
        "taskiq+redis+cluster": _REDIS,
        "taskiq+rediss+cluster": _REDIS,
        "taskiq+amqp": _AMQP,
        "taskiq+amqps": _AMQP,
    },
)
