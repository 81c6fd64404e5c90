"""Celery: what dies in its workers becomes a letter, and a replay publishes the original message again.

    from redrive.integrations.celery import RedriveCelery
    RedriveCelery(app, store="postgresql://…")

app.py         RedriveCelery: what is added to an app, and what is reported
consumer.py    what a worker's consumer could not make a task of: unknown, undecodable, invalid
request.py     what becomes of each task, seen where its message is acknowledged
attempts.py    earlier attempts, which travel with the message of a retry
wire.py        a message of kombu as one of ours, and back
transport.py   celery+amqp://, celery+redis://: publishes the original message
notes.py       what a worker says of its settings, and
checks.py      what `redrive doctor` makes of it
"""

from __future__ import annotations

from redrive.systems.base import exports

__all__ = ["RedriveCelery"]
__getattr__ = exports(__name__, {"app": ("RedriveCelery",)}, extra="celery")
