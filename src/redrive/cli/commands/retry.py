"""`redrive retry`: single letters go back now."""

from __future__ import annotations

import click

from redrive.cli.completing import a_letter
from redrive.cli.follow import Patience, follow_replay, waiting
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.session import actor


@click.command()
@click.argument("ids", shell_complete=a_letter, nargs=-1, required=True)
@waiting
@as_json
@common
def retry(ids: tuple[str, ...], patience: Patience, as_json: bool) -> None:
    """Send these letters back now, without asking: a replay of exactly them.

    IDS are ids of letters, the beginnings of them, or ids of messages. One that cannot be sent stops all of them:
    its state does not allow it, or the transport that it goes back through is not configured here.

    \b
    redrive retry xkqj2m7pxw3abcde --wait
    """
    follow_replay(lambda service: service.start_retry(ids, actor=actor()), patience, as_json=as_json, each=True)
