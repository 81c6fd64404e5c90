"""`redrive debug`: the real handler on the real message, under a debugger or as a test."""

from __future__ import annotations

import os
from pathlib import Path

import click

from redrive.cli.completing import a_letter
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.lazy import common
from redrive.cli.output import plain, say
from redrive.cli.session import actor, ask
from redrive.debugging.envfile import read_env_file
from redrive.forensics.carried import CarriedMessage, message_of
from redrive.private import open_private


@click.command()
@click.argument("id", shell_complete=a_letter)
@click.option("--handler", required=True, metavar="MODULE:HANDLER", help="The handler, such as shop:charge.")
@click.option(
    "--debugger", type=click.Choice(["pdb", "debugpy"]), default="pdb", show_default=True, help="Which debugger."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=5678, show_default=True, help="Of debugpy.")
@click.option("--reason", default="redrive debug", help="Why its secrets are seen, for the audit trail.")
@click.option(
    "--env-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Variables for the handler."
)
@click.option(
    "--pytest",
    "test",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a test with the message as a fixture, and run nothing.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@common
def debug(
    id: str,
    handler: str,
    debugger: str,
    port: int,
    reason: str,
    env_file: Path | None,
    test: Path | None,
    force: bool,
) -> None:
    """Run the handler on the message of letter ID under a debugger: at its first line, and where it fails.

    Nothing that it sends through its Redrive app is sent, and nothing is resolved; its other effects are real, unless
    --env-file points them elsewhere.

    \b
    redrive debug 4kq2m7pxw3ab --handler shop:charge
    redrive debug 4kq2m7pxw3ab --handler shop:charge --server https://redrive.example.org
    redrive debug 4kq2m7pxw3ab --handler shop:charge --pytest tests/test_charge.py
    """
    found = ask(lambda service: service.message(id, actor=actor(), reason=reason))
    if found.redacted:
        say("The body is redacted: your role may not see secrets, so the handler may fail of a mask. Ask an admin.")
    if test is not None:
        _write(test, found, handler, force)
        return
    os.environ.update({} if env_file is None else read_env_file(env_file))
    _run(found, handler, debugger, port)


def _write(file: Path, found: CarriedMessage, handler: str, force: bool) -> None:
    from redrive.debugging.pytest_file import test_file

    if ":" not in handler:
        raise click.BadParameter("name the handler, as shop:charge", param_hint="--handler")
    text = test_file(found, handler)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open_private(file, "wb" if force else "xb") as out:
            out.write(text.encode())
    except FileExistsError:
        raise Stopped(f"{file} is there already: name another file, or say --force to write over it") from None
    say(f"{plain(str(file))} is written: run it with pytest {plain(str(file))}")
    if not found.redacted:
        say("It holds the message as it is: look for secrets in it before you commit it.")


def _run(found: CarriedMessage, target: str, debugger: str, port: int) -> None:
    from redrive.debugging.debugger import under_debugpy, under_pdb
    from redrive.debugging.handlers import find_handler
    from redrive.debugging.isolation import isolated

    with isolated() as isolation:
        chosen, message = find_handler(target, found.source), message_of(found)
        say(f"Letter {plain(found.letter)} died of {plain(found.error_type)}: {plain(found.error_message)}")
        if debugger == "pdb":
            error = under_pdb(chosen, message)
        else:
            error = under_debugpy(chosen, message, "127.0.0.1", port, say)
        for source, count in isolation.sources().items():
            say(f"{count:,} to {plain(source)} would have been sent, and was not")
    if error is not None:
        say(f"It fails: {plain(type(error).__name__)}: {plain(str(error))}")
        raise click.exceptions.Exit(NOTHING)
    say("It ran to its end, or you left it: nothing was sent, resolved or changed")
