"""`redrive keys`: what proves that a message which comes back was sent by us."""

from __future__ import annotations

import click

from redrive.cli.lazy import common
from redrive.cli.output import say
from redrive.cli.session import Needs, actor, ask_store
from redrive.flow.signing import rotate as rotate_keys
from redrive.service import Service


@click.group()
@common
def keys() -> None:
    """The keys that sign what is sent back. The first is made by itself."""


@keys.command()
@click.option("--drop-old", is_flag=True, help="Make none, and forget all but the newest.")
@common
def rotate(drop_old: bool) -> None:
    """Add a key. It signs in three minutes, when every process knows it; the old ones are accepted until --drop-old."""

    async def work(service: Service) -> int:
        count = await rotate_keys(service.app.store, service.app.clock.now(), drop_old=drop_old)
        await service.note(actor(), "keys rotate", "dropped the old ones" if drop_old else f"{count} are accepted")
        return count

    count = ask_store(work, Needs.NOTHING)
    if drop_old:
        say("The newest key is the only one now.")
    else:
        say(f"{count} keys are accepted. When nothing signed with the old one is on its way any more:")
        say("redrive keys rotate --drop-old")
