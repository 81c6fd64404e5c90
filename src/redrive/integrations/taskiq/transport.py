"""The way back to Taskiq's workers: the task is kicked as its broker kicks it, with the same id and arguments.

taskiq+redis://host:6379/0    taskiq+rediss://…    taskiq+redis+cluster://…
taskiq+amqp://user:password@host/vhost             taskiq+amqps://…
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from redrive.clock import Clock
from redrive.integrations.over_redis import OverRedis
from redrive.integrations.send_only import SendOnly
from redrive.integrations.taskiq.places import EXCHANGE, KIND, ROUTING_KEY
from redrive.integrations.taskiq.wire import labels_in, lineage_labels, with_labels
from redrive.model import Message
from redrive.transports.base import ACCEPTED, SendResult, busy, refused

_SCHEME = "taskiq+"
_FIELD = "data"  # of an entry in a stream
_NO_GROUP = "no worker has made its stream {!r} yet: one that comes later would not see it. Start a worker first"
_NOBODY = "no worker listens to {!r} now: start one first"


def task_of(message: Message) -> bytes:
    """The task as bytes, with the labels by which its outcome finds its letter."""
    return with_labels(message.body, lineage_labels(message))


class TaskiqRedis(OverRedis):
    """A list, a stream or a channel, as the key itself says; where there is none, as its worker said."""

    name = "Taskiq on Redis"

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        types = await self.types_of([message.source for message in messages])
        kinds = [_kind_of(message, types[message.source]) for message in messages]
        commands = [_command(kind, message) for kind, message in zip(kinds, messages, strict=True)]
        answers = iter(await self.link.commands([command for command in commands if command]))
        return [
            _answered(kind, message, next(answers)) if command else _not_sent(kind, message, types[message.source])
            for kind, message, command in zip(kinds, messages, commands, strict=True)
        ]


def _kind_of(message: Message, type: str) -> str:
    said = (message.header(KIND) or b"").decode("ascii", "replace")
    if type in ("list", "stream"):
        return type
    return said if type == "none" else ""


def _command(kind: str, message: Message) -> tuple[str | bytes, ...]:
    match kind:
        case "list":
            return ("LPUSH", message.source, task_of(message))
        case "stream":
            return ("XADD", message.source, "NOMKSTREAM", "*", _FIELD, task_of(message))
        case "pubsub":
            return ("PUBLISH", message.source, task_of(message))
    return ()


def _answered(kind: str, message: Message, answer: Any) -> SendResult:
    if kind == "stream" and answer is None:
        return busy(_NO_GROUP.format(message.source))
    if kind == "pubsub" and not answer:
        return busy(_NOBODY.format(message.source))
    return ACCEPTED


def _not_sent(kind: str, message: Message, type: str) -> SendResult:
    if type != "none":
        return refused(f"{message.source!r} is a {type} in this Redis, and no queue of Taskiq: correct the URL")
    return refused(
        f"it died in a worker of another broker ({kind or 'unknown to Redrive'}): taskiq+redis:// takes tasks back to"
        " lists, streams and channels of Redis"
    )


def open_redis(url: str, *, clock: Clock, lease: timedelta) -> SendOnly:
    return TaskiqRedis(url.removeprefix(_SCHEME))


def open_amqp(url: str, *, clock: Clock, lease: timedelta) -> SendOnly:
    from pika import BasicProperties

    from redrive.integrations.over_amqp import OverAmqp
    from redrive.transports.rabbitmq.publisher import Parcel

    class TaskiqAmqp(OverAmqp):
        """Into the queue that it came from; through its exchange where that is not sure."""

        name = "Taskiq on RabbitMQ"

        def parcel_of(self, message: Message) -> Parcel:
            exchange = (message.header(EXCHANGE) or b"").decode("utf-8", "replace")
            key = (message.header(ROUTING_KEY) or message.source.encode()).decode("utf-8", "replace")
            task = task_of(message)
            return Parcel(exchange, key, BasicProperties(delivery_mode=2, **_properties(message, task)), task)

    return TaskiqAmqp(url.removeprefix(_SCHEME))


def _properties(message: Message, task: bytes) -> dict[str, Any]:
    """Headers as Taskiq's broker sets them: the labels, which name its task, too."""
    labels = {name: value for name, value in labels_in(task).items() if isinstance(value, str | int | bool | float)}
    name = (message.header("taskiq-task") or b"").decode("utf-8", "replace")
    priority = str(labels.get("priority", ""))
    return {
        "headers": {"task_id": message.id, "task_name": name, **labels},
        "priority": int(priority) if priority.isdecimal() and int(priority) < 256 else None,
    }
