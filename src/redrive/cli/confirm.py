"""Asks before letters are changed by a filter."""

from __future__ import annotations

import sys

import click

from redrive.cli.exits import INTERRUPTED, NOTHING, WRONG, Stopped
from redrive.forensics.query import Query


def confirm(question: str, *, yes: bool) -> None:
    """Ask, and end the command if the answer is no. Where nobody can answer, only --yes goes on."""
    if yes:
        return
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise Stopped("nothing was done", INTERRUPTED) from None
        raise Stopped("nobody is there to answer: say --yes to go on without being asked", WRONG) from None
    if not agreed:
        raise Stopped("nothing was done", NOTHING)


def not_empty(query: Query, *, every: bool, verb: str) -> None:
    """Refuse an empty filter: it selects every letter, which is rarely meant."""
    if query.is_empty and not every:
        raise Stopped(f"which letters? Give a filter (--group, --source, …), or --all to {verb} every one")
