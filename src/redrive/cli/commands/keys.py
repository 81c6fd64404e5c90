"""`redrive keys`: what proves that a message which comes back was sent by us."""

from __future__ import annotations

import click

from redrive.cli.lazy import common
from redrive.cli.output import say
from redrive.cli.session import Needs, actor, ask_store


@click.group()
@common
def keys() -> None:
    """The keys that sign what is sent back. The first is made by itself."""


@keys.command()
@click.option("--drop-old", is_flag=True, help="Make none, and forget all but the newest.")
@common
def rotate(drop_old: bool) -> None:
    """Add a key. It signs in three minutes, when every process knows it; the old ones are accepted until --drop-old."""
    count = ask_store(lambda service: service.rotate_keys(actor=actor(), drop_old=drop_old), Needs.NOTHING)
    if drop_old:
        say("The newest key is the only one now.")
    else:
        say(f"{count} keys are accepted. When nothing signed with the old one is on its way any more:")
        say("redrive keys rotate --drop-old")
