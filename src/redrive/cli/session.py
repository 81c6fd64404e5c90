"""Finds the home of a command, a store or a server: what every command that sees or acts has in common."""

from __future__ import annotations

import asyncio
import getpass
import shlex
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import TypeVar

import click
from msgspec.structs import replace

from redrive.access.actors import BESIDE, Actor, Role, Via
from redrive.answers import Unanswered, within
from redrive.app import Redrive
from redrive.cli.exits import WRONG, Stopped
from redrive.cli.hints import program, where
from redrive.cli.lazy import Given
from redrive.cli.output import plain, say
from redrive.config.load import Loaded, read
from redrive.config.settings import Settings
from redrive.service import Home, Service

T = TypeVar("T")
CLOSING = 2.0
"""Seconds that a command waits for its connections to be closed; the process ends them anyway."""
Work = Callable[[Home], Awaitable[T]]
StoreWork = Callable[[Service], Awaitable[T]]


class Needs(Enum):
    """What a command needs of the files it works on."""

    LETTERS = "letters"  # they must be there; a queue that was never used is left alone
    QUEUES = "queues"  # letters must be there; queues are made, because something is sent
    NOTHING = "nothing"  # what is missing is made


def given() -> Given:
    """The options that every command takes, as they were given."""
    return click.get_current_context().ensure_object(Given)


def loaded() -> Loaded:
    """The settings of this call. `--store` wins; alone, a SQLite file holds the queue too, as in an app."""
    said = given()
    found = read(said.config)
    if said.store is None:
        return found
    changes, sources = {"store": said.store}, {**found.sources, "store": "--store"}
    transports = found.settings.transports
    if said.store.startswith("sqlite://") and "transports.default" not in found.sources:
        transports = {**transports, "default": said.store}
        sources["transports.default"] = "--store"
    return Loaded(replace(found.settings, **changes, transports=transports), sources, found.file)


def server() -> str | None:
    """The server that this call asks; None where it opens a store. What is said here wins over what is configured."""
    said = given()
    if said.server is not None and said.store is not None:
        raise Stopped("--server asks a server, and --store opens a database: give one of them")
    if said.store is not None:
        return None
    named = said.server or read(said.config).settings.server
    if named is None:
        return None
    from redrive.remote.address import checked

    return checked(named)


def ask(work: Work[T], needs: Needs = Needs.LETTERS) -> T:
    """Do that in the home that this call has, a server or a store, and close everything."""
    named = server()
    if named is not None:
        return asyncio.run(_asked_remotely(work, named))
    return ask_store(work, needs)


def ask_store(work: StoreWork[T], needs: Needs = Needs.LETTERS, settings: Settings | None = None) -> T:
    """Do that with a Service on these settings or those of this call: beside a store, and nowhere else."""
    return asyncio.run(_asked(work, needs, settings))


async def _asked_remotely(work: Work[T], named: str) -> T:
    from redrive.remote.connecting import connected
    from redrive.remote.service import RemoteService

    async with connected(named, ca_file()) as http:
        return await work(RemoteService(http, unanswered=_warner()))


def ca_file() -> Path | None:
    """The certificate of the authority that a server's is signed by, if it is none that the system trusts."""
    said = given()
    configured = read(said.config).settings.ca_file
    return said.ca_file or (None if configured is None else Path(configured))


async def _asked(work: StoreWork[T], needs: Needs, settings: Settings | None) -> T:
    app = Redrive(settings=_checked(settings or loaded().settings, needs))
    try:
        return await work(Service(app, unanswered=_warner()))
    finally:
        await within(app.aclose(), CLOSING)  # what hangs ends with the process


def _warner() -> Callable[[Unanswered], None]:
    """Says on stderr which backend did not answer, each once."""
    told: set[str] = set()

    def warn(silent: Unanswered) -> None:
        if silent.backend not in told:
            told.add(silent.backend)
            say(f"warning: {silent.backend} does not answer: {plain(silent.why)}")

    return warn


def actor() -> Actor:
    """Who does it: whoever the system says it is, with the store itself in hand."""
    try:
        name = f"{getpass.getuser()}{BESIDE}"
    except (KeyError, OSError):  # a container whose user has no name
        name = "cli"
    return Actor(id="", name=name, role=Role.ADMIN, via=Via.STORE, may_unmask=True)


def command(*words: str) -> str:
    """A command of ours as it can be pasted, on the same database."""
    return f"{program()} {shlex.join([*where(), *words])}"


def again(**changes: str) -> str:
    """This command with other options, as it can be pasted."""
    words, arguments = list[str](), iter(given().arguments)
    names = {f"--{name}": value for name, value in changes.items()}
    for word in arguments:
        if word in names:
            next(arguments, None)
        elif word.partition("=")[0] not in names:
            words.append(word)
    return f"{program()} {shlex.join([*words, *(word for pair in names.items() for word in pair)])}"


def _checked(settings: Settings, needs: Needs) -> Settings:
    if settings.store.startswith("memory:"):
        raise Stopped(
            "the store is memory://, which lives and dies inside one process: no command can look into it.\n"
            "Set `store` (REDRIVE_STORE) to a database, such as sqlite:///redrive.db"
        )
    file = sqlite_file(settings.store)
    if needs is not Needs.NOTHING and file is not None and not file.exists():
        raise Stopped(_missing(file), WRONG)
    if needs is Needs.LETTERS:
        return replace(settings, transports={n: url for n, url in settings.transports.items() if _is_there(url)})
    return settings


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite URL, without opening it; None for any other."""
    if not url.startswith("sqlite://"):
        return None
    from redrive.drivers.sqlite.database import path_of

    return path_of(url)


def _is_there(url: str) -> bool:
    file = sqlite_file(url)
    return file is None or file.exists()


def _missing(file: Path) -> str:
    place = "here" if file.parent == Path.cwd() else f"in {file.parent}"
    return (
        f"no {file.name} {place}: go to the directory where your worker runs, or name the database with\n"
        f"--store sqlite:////path/to/{file.name} (or REDRIVE_STORE, or `store` in redrive.toml). "
        f"The first `redrive send` or `redrive run` makes one."
    )
