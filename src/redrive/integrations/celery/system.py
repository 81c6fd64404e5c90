"""The descriptor of the Celery integration: what the core knows of it."""

from redrive.systems.base import System

_TRANSPORT = "redrive.integrations.celery.transport:open_transport"
_SCHEMES = ("celery+amqp", "celery+amqps", "celery+redis", "celery+rediss", "celery+sentinel")

system = System(
    name="celery",
    about="Celery workers: what dies in them becomes a letter",
    extra="celery",
    checks="redrive.integrations.celery.checks:examine",
    transports=dict.fromkeys(_SCHEMES, _TRANSPORT),
)
