"""Dramatiq's messages as letters: a middleware for its workers, and the way back over RabbitMQ and Redis.

envelope.py     a message as Dramatiq writes it, without what its retries added, and with our lineage
middleware.py   RedriveDramatiq: reports deaths and successes
reader.py       its dead-letter queues (`.XQ`) for `redrive collect`
over_amqp.py    dramatiq+amqp://
over_redis.py   dramatiq+redis://
checks.py       what `redrive doctor` looks at
"""

from typing import TYPE_CHECKING

from redrive.systems.base import exports

if TYPE_CHECKING:
    from redrive.integrations.dramatiq.middleware import RedriveDramatiq

__all__ = ["RedriveDramatiq"]
__getattr__ = exports(__name__, {"middleware": ("RedriveDramatiq",)}, extra="dramatiq")
