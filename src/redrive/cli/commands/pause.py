"""`redrive pause` and `redrive resume`: a source paused for all its workers."""

from __future__ import annotations

import click

from redrive.cli.completing import a_source
from redrive.cli.lazy import common
from redrive.cli.output import say
from redrive.cli.session import Needs, actor, ask, command

_transport = click.option("--transport", default="default", show_default=True, help="The transport that has it.")


@click.command()
@click.argument("source", shell_complete=a_source)
@_transport
@common
def pause(source: str, transport: str) -> None:
    """Hold SOURCE: nobody receives anything of it until it is resumed. What runs may end, and sending goes on."""
    ask(lambda service: service.pause(source, actor=actor(), transport=transport), Needs.NOTHING)
    say(f"{source} is paused; let it go on with: {command('resume', source)}")


@click.command()
@click.argument("source", shell_complete=a_source)
@_transport
@common
def resume(source: str, transport: str) -> None:
    """Let SOURCE go on after `redrive pause`."""
    ask(lambda service: service.resume(source, actor=actor(), transport=transport), Needs.NOTHING)
    say(f"{source} goes on")
