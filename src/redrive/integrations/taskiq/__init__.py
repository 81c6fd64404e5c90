"""Taskiq: what dies in its workers becomes a letter, and a replay kicks the same task again.

    broker.add_middlewares(RedriveMiddleware(store="postgresql://…"))

middleware.py   what a worker reports
formatter.py    what Taskiq drops before any middleware sees it: bytes it cannot read, tasks it does not know
places.py       where a task was taken from, and by which kind of broker
wire.py         a task as bytes, with labels of ours
transport.py    the way back: taskiq+redis://, taskiq+amqp://
"""

from redrive.systems.base import exports

__all__ = ["RedriveMiddleware"]
__getattr__ = exports("redrive.integrations.taskiq", {"middleware": ("RedriveMiddleware",)}, "taskiq")
