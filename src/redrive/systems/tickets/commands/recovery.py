"""`redrive tickets republish` and `redrive tickets purge`: what is done about dead tickets."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.cli.confirm import confirm
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.follow import Patience, follow_replay_here, waiting
from redrive.cli.lazy import common
from redrive.cli.options import as_json, rate, span, until_now, yes
from redrive.cli.output import show, tell_json
from redrive.cli.session import actor
from redrive.config.settings import Settings
from redrive.errors import Unavailable
from redrive.flow.replay import Replay
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.service.acting import acts
from redrive.systems.tickets.commands.session import Chosen, ask_tickets, dead_tickets, on_mongodb, which, with_settings
from redrive.systems.tickets.settings import TicketSettings

if TYPE_CHECKING:
    from redrive.systems.tickets.relay import Relay, Relayed


@click.command("republish")
@which
@click.option("--all", "every", is_flag=True, help="Every dead ticket.")
@click.option("--from-topic", is_flag=True, help="Straight from the DLQ topic, in transactions, without MongoDB.")
@click.option("--limit", type=click.IntRange(1), default=None, help="At most so many, the newest first.")
@click.option("--rate", "pace", type=rate, metavar="50/s", help="At most so many a second (50, 50/s, 3000/m).")
@click.option("--dry-run", is_flag=True, help="Say how many, and send nothing.")
@waiting
@with_settings
@yes
@as_json
@common
def republish(
    chosen: Chosen,
    every: bool,
    from_topic: bool,
    limit: int | None,
    pace: float | None,
    dry_run: bool,
    patience: Patience,
    settings: Settings,
    yes: bool,
    as_json: bool,
) -> None:
    """Send dead tickets back to their topic, with their key and their headers. Say which.

    From MongoDB it is a replay: exactly what was selected is sent, once, and each ticket's outcome is known. With
    --from-topic it is one Kafka transaction after the other, from where the last one ended.
    """
    if from_topic:
        if chosen.is_narrow or pace is not None:
            raise Stopped("--from-topic sends all that lies on the DLQ topic: to choose, or to go slowly, leave it out")
        _relay(limit, dry_run, settings, yes=yes, as_json=as_json)
        return
    if not chosen.is_narrow and not every:
        raise Stopped("which tickets? Give --ticket, --task-type, --error-type or an age, or --all")
    asked = until_now(chosen.query(settings.of(TicketSettings).topic))
    ids = tuple(
        letter.id for letter in ask_tickets(settings, lambda service: dead_tickets(service, asked, chosen, limit))
    )
    if not ids:
        raise Stopped("no dead ticket matches: nothing was sent", NOTHING)
    if dry_run:
        tell_json({"tickets": len(ids)}) if as_json else show(f"{len(ids):,} tickets would be sent back")
        return
    confirm(f"Send {len(ids):,} tickets back to {settings.of(TicketSettings).topic}?", yes=yes)

    async def start(service: Service) -> Replay:
        service.app.declare(settings.of(TicketSettings).topic)
        return await service.replay(replace(asked, ids=ids), actor=actor(), rate=pace, reason="tickets republish")

    follow_replay_here(start, patience, as_json=as_json, settings=on_mongodb(settings))


def _relay(limit: int | None, dry_run: bool, settings: Settings, *, yes: bool, as_json: bool) -> None:
    from redrive.systems.tickets.relay import Relay
    from redrive.systems.tickets.worker import kafka_options

    if dry_run:
        raise Stopped("--dry-run counts what is in MongoDB: leave --from-topic out")
    own = settings.of(TicketSettings)
    group = f"{own.group}-republish"
    over = settings.access.approve_over
    if over is not None and (limit is None or limit > over):
        raise Stopped(
            f"more than {over:,} letters wait for a second person (access.approve_over), and nobody has counted what "
            f"lies on the topic: give --limit, of {over:,} at most, or leave --from-topic out, and the replay waits"
        )
    confirm(f"Send the dead tickets on {own.dlq_topic} back to {own.topic}?", yes=yes)
    relay = Relay(kafka_options(own, group), own.dlq_topic, own.topic, group=group)
    done = ask_tickets(settings, lambda service: _relayed(service, relay, own.dlq_topic, limit, actor=actor()))
    stubs = f"; {done.stubs:,} were too large for the topic, and are in MongoDB only" if done.stubs else ""
    tell_json(done) if as_json else show(f"{done.sent:,} tickets sent back{stubs}")


@acts("replay", even_unwritten=True)
async def _relayed(service: Service, relay: Relay, source: str, limit: int | None, *, actor: Actor) -> Relayed:
    """Relay them, signed by the key of MongoDB if it answers: a success of what is not signed resolves nothing."""
    with suppress(Unavailable):
        await load_keys(service.app.store, datetime.now(UTC))
    done = await relay.run(limit=limit)
    with suppress(Unavailable):
        await service.note(actor, "replay", f"{done.sent:,} tickets, straight from {source}")
    return done


@click.command("purge")
@click.option(
    "--older-than", type=span, default="90d", show_default=True, metavar="DURATION", help="Dead for longer than this."
)
@with_settings
@yes
@as_json
@common
def purge(older_than: timedelta, settings: Settings, yes: bool, as_json: bool) -> None:
    """Delete dead tickets from MongoDB for good. Nothing does so by itself."""
    asked = Query(sources=(settings.of(TicketSettings).topic,), before=datetime.now(UTC) - older_than)
    count = ask_tickets(settings, lambda service: service.count(asked))
    if not count:
        raise Stopped("no dead ticket is that old: nothing was deleted", NOTHING)
    confirm(f"Delete {count:,} dead tickets for good?", yes=yes)
    gone = ask_tickets(settings, lambda service: service.purge(asked, actor=actor()))
    tell_json({"deleted": gone}) if as_json else show(f"{gone:,} dead tickets deleted")
