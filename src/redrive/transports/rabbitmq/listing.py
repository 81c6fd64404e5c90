"""What can be said of a queue of RabbitMQ without taking anything from it: how many wait, where, and in whose hands.

To see a message is to take it: it goes back marked as redelivered, and to another place in its queue. So none is shown.
"""

from __future__ import annotations

from redrive.errors import ConfigError, TransportUnavailable
from redrive.transports.rabbitmq.declaring import message_count
from redrive.transports.rabbitmq.link import NOT_FOUND, ChannelClosed, Link
from redrive.transports.rabbitmq.management import Management
from redrive.transports.rabbitmq.options import Options
from redrive.transports.rabbitmq.topology import retry_queue, rungs

_UNSEEN = (
    "messages are not shown: RabbitMQ shows one only to who takes it, which would mark it as redelivered and move it "
    "to another place in its queue"
)


async def notes(link: Link, options: Options, source: str) -> list[str]:
    """What there is to say, in words."""
    said = [_UNSEEN, f"{await _counted(link, source):,} ready in queue {source}"]
    for delay in rungs(options.queue(source)):
        name = retry_queue(source, delay)
        waiting = await _counted(link, name)
        if waiting:
            said.append(f"{waiting:,} wait for their next attempt in {name}")
    return [*said, await _in_hand(options, source)]


async def _counted(link: Link, queue: str) -> int:
    """How many it holds; a queue of somebody else's may have no retry parts."""
    channel = await link.channel()
    try:
        return await message_count(channel, queue)
    except ChannelClosed as closed:
        if closed.code != NOT_FOUND:
            raise
        return 0
    finally:
        await channel.close()


async def _in_hand(options: Options, source: str) -> str:
    try:
        management = Management(options.management_url, vhost=options.vhost)
        try:
            found = await management.in_hand(source)
        finally:
            await management.aclose()
    except (TransportUnavailable, ConfigError) as error:
        return f"how many are in hand, and whose, only the management API knows: {error}"
    if found is None or not found.connections:
        return "nobody consumes from it, as far as the management API knows"
    return f"{found.unacknowledged:,} in hand (some seconds ago) of: {', '.join(found.connections)}"
