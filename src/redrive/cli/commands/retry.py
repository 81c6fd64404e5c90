"""`redrive retry`: single letters go back now."""

from __future__ import annotations

import click

from redrive.cli.completing import a_letter
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.follow import Patience, follow_replay, waiting
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.session import actor
from redrive.flow.replay import Replay
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.stores.base import REPLAYABLE


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
    follow_replay(lambda service: _these(service, ids), patience, as_json=as_json, each=True)


async def _these(service: Service, ids: tuple[str, ...]) -> Replay:
    letters = [await service.find(id) for id in ids]
    for letter in letters:
        if letter.state not in REPLAYABLE:
            raise Stopped(
                f"letter {letter.id} is {letter.state}: only pending, exhausted and sent ones are sent back", NOTHING
            )
    service.check_way_back(letters)
    query = Query(ids=tuple(letter.id for letter in letters))
    return await service.replay(query, actor=actor(), reason="retry")
