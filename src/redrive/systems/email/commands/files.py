"""`redrive email redis-conf` and `alert-rules`: what other programs are to be given."""

from __future__ import annotations

from importlib.resources import files

import click

from redrive.cli.lazy import common


@click.command("redis-conf")
@common
def redis_conf() -> None:
    """Print a redis.conf that loses no job: AOF every second, 512 MB, and no eviction."""
    click.echo(files("redrive.systems.email").joinpath("redis.conf").read_text("utf-8"), nl=False)


@click.command("alert-rules")
@common
def alert_rules() -> None:
    """Print alert rules for Prometheus: the DLQ, its share of what is sent, companies, and Redis' memory."""
    click.echo(files("redrive.systems.email").joinpath("rules.yml").read_text("utf-8"), nl=False)
