"""`redrive init`: a small app, its configuration, and a test that runs."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from pkgutil import get_data
from string import Template
from urllib.parse import urlsplit

import click

from redrive.cli.exits import Stopped
from redrive.cli.hints import program
from redrive.cli.lazy import common
from redrive.cli.output import say

_URLS = {
    "sqlite": "sqlite:///redrive.db",
    "redis": "redis://127.0.0.1:6379/0",
    "kafka": "kafka://127.0.0.1:9092/?group=shop&counters=sqlite:///redrive.db",
    "rabbitmq": "amqp://guest:guest@127.0.0.1:5672/",
}
_FILES = ("shop.py", "redrive.toml", "test_shop.py")
_IN_THE_WAY = (*_FILES, "redrive.yaml", "redrive.yml", "redrive.db")


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option(
    "--transport",
    type=click.Choice(list(_URLS)),
    default="sqlite",
    show_default=True,
    help="What messages travel on; sqlite needs no server.",
)
@click.option("--url", help="Its URL. [by default that of a server on this machine]")
@common
def init(directory: Path, transport: str, url: str | None) -> None:
    """Write a small app, its configuration and a test into DIRECTORY, which is made if it is not there.

    Nothing is replaced: if a file of that name is there already, nothing at all is written.

    \b
    redrive init shop
    redrive init shop --transport kafka --url 'kafka://broker:9092/?group=shop'
    """
    url = _URLS[transport] if url is None else _checked(url)
    _refuse_to_replace(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        text = (get_data("redrive.cli", f"templates/{name}.txt") or b"").decode()
        with (directory / name).open("x", encoding="utf-8") as file:
            file.write(Template(text).substitute(URL=url) if name == "redrive.toml" else text)
    say(_next(directory, transport, url))


def _checked(url: str) -> str:
    from redrive.registry import check_url, naming

    with naming("--url"):
        check_url("transport", url)
    if set('"\\\n') & set(url):
        raise Stopped("--url: it has a quote, a backslash or a line end in it; write them as %22, %5C and %0A")
    return url


def _refuse_to_replace(directory: Path) -> None:
    there = [name for name in _IN_THE_WAY if (directory / name).exists() or (directory / name).is_symlink()]
    if there:
        place = "here" if directory == Path() else f"in {directory}"
        raise Stopped(f"nothing was written: {', '.join(there)} {place} would be in the way. Name an empty directory")


def _next(directory: Path, transport: str, url: str) -> str:
    steps = [] if directory == Path() else [f"cd {shlex.quote(str(directory))}"]
    steps += _needed(transport, url)
    called = program() if program() == "redrive" else shlex.quote(str(Path(sys.argv[0]).absolute()))
    python = "python" if called == "redrive" else shlex.quote(sys.executable)
    steps += [
        f'{called} send orders \'{{"id": 1, "amount": 20}}\'',
        f"{called} run shop:app",
        f"{called} doctor --app shop:app",
        *([] if find_spec("pytest") else [f"{python} -m pip install pytest"]),
        f"{python} -m pytest",
    ]
    return "\n".join([f"made {', '.join(_FILES)}. Next:", *(f"  {step}" for step in steps)])


def _needed(transport: str, url: str) -> list[str]:
    """What has to be there first: the extra, and on Kafka the topic, which many brokers do not make by themselves."""
    from redrive.extras import install, missing_extras

    steps = [install(transport)] if transport in missing_extras() else []
    if url.startswith("kafka"):
        servers = urlsplit(url).netloc.rpartition("@")[2]
        steps.append(f"kafka-topics.sh --bootstrap-server {servers} --create --if-not-exists --topic orders")
    return steps
