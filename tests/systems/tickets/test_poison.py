"""Tickets that are poison to whoever reads them: they are dead letters, and the ticket behind them is handled."""

from __future__ import annotations

from typing import Any

from redrive.testing.waiting import until
from redrive.transports.kafka.wire import ENVELOPE
from tests.systems.tickets.world import World


def nested(levels: int, **fields: str) -> bytes:
    """A ticket of so many levels."""
    own = "".join(f'"{name}": "{value}", ' for name, value in fields.items())
    return f'{{{own}"deep": {"[" * (levels - 1)}{"]" * (levels - 1)}}}'.encode()


async def test_deep_tickets_stop_neither_worker_nor_dlq_consumer(world: World) -> None:
    depths = (250, 300, 900, 960, 990, 997, 1100, 100_000)
    poison = [nested(levels, ticket_id=world.id(f"deep-{levels}"), task_type="BUILD") for levels in depths]
    lie = nested(997, id="x", at="1")
    world.main.produce(*[(b"k", body) for body in poison])
    world.main.produce((b"k", b"[1]"), headers=[(ENVELOPE, lie)])
    world.send("good")
    handled: list[str] = []

    async def handle(ticket: dict[str, Any]) -> None:
        handled.append(ticket["ticket_id"])

    async with world.worker(handle):
        await until(lambda: world.id("good") in handled, what="the ticket behind them is handled")
        await world.main.until_committed(len(poison) + 2)
    assert set(handled) == {world.id("deep-250"), world.id("good")}
    async with world.consumer():
        documents = await world.until_dead(len(poison))
    kinds = {document["dlq_metadata"]["error_type"] for document in documents}
    assert kinds == {"NoTicket", "RecursionError", "ValidationError"}
    assert [record.value() for record in world.graves()] == [*poison[1:], b"[1]"]
