"""`redrive note`, `assign` and `differs`: what people write down of a group, and what its letters share."""

from __future__ import annotations

import click

from redrive.cli.completing import a_group
from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, line, plain, say, show, table, tell_json
from redrive.cli.session import actor, ask

_group = click.argument("group", shell_complete=a_group)


@click.command()
@_group
@click.argument("text", required=False)
@as_json
@common
def note(group: str, text: str | None, as_json: bool) -> None:
    """Write TEXT down beside GROUP, for whoever looks at it next; without TEXT, print what was written.

    \b
    redrive note 4kq2m7pxw3ab "the supplier mends it on Friday"
    redrive note 4kq2m7pxw3ab
    """
    found = ask(
        lambda service: service.group_notes(group) if text is None else service.note_group(group, text, actor=actor())
    )
    if as_json:
        tell_json(found)
    elif text is not None:
        say(f"written down; there are {len(found)} notes of this group" if len(found) > 1 else "written down")
    elif found:
        show(*(line(f"{age(note.at)}  {note.actor}: {note.text}") for note in found))
    if not found:
        say("nobody has written anything beside this group")
        raise click.exceptions.Exit(NOTHING)


@click.command()
@_group
@click.argument("name", required=False)
@click.option("--nobody", is_flag=True, help="Nobody sees to it any more.")
@as_json
@common
def assign(group: str, name: str | None, nobody: bool, as_json: bool) -> None:
    """Say that NAME sees to GROUP; the console and `redrive groups` show it.

    \b
    redrive assign 4kq2m7pxw3ab ann
    redrive assign 4kq2m7pxw3ab --nobody
    """
    if nobody == (name is not None):
        raise click.UsageError("say who sees to it, or --nobody, and not both")
    view = ask(lambda service: service.assign(group, name, actor=actor()))
    who = f"{plain(view.assignee)} sees to it" if view.assignee else "nobody sees to it now"
    tell_json(view) if as_json else say(f"{plain(view.id)}: {who}")


@click.command()
@_group
@as_json
@common
def differs(group: str, as_json: bool) -> None:
    """Print which values many letters of GROUP have and few others of its sources do: fields of the body, headers,
    tenant, version. Of a sample of the newest letters, with secrets masked."""
    found = ask(lambda service: service.differs(group))
    if as_json:
        tell_json(found)
    elif found.fields:
        made = table("FIELD", "VALUE", "HERE", "ELSEWHERE", right=("HERE", "ELSEWHERE"))
        for fact in found.fields:
            made.add_row(line(fact.field), line(fact.value), f"{fact.here:.0%}", f"{fact.elsewhere:.0%}")
        show(f"{found.letters:,} letters of the group, {found.others:,} others", "", made)
    if not found.fields:
        why = "there are no others of its sources to compare with" if not found.others else "nothing stands out"
        say(f"{why} ({found.letters:,} letters of the group, {found.others:,} others)")
        raise click.exceptions.Exit(NOTHING)
