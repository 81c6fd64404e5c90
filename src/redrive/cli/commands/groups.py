"""`redrive groups`: the view for 3 a.m. Ten thousand letters as three causes, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from msgspec.structs import replace
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json, filters
from redrive.cli.output import age, error, letters_said, line, plain, say, show, states, tell_json, to_copy, width
from redrive.cli.session import ask, command
from redrive.forensics.marks import GroupState
from redrive.forensics.query import Query
from redrive.forensics.standing import Standing
from redrive.model import OPEN
from redrive.service import GroupView, Home, TrendView
from redrive.stores.base import GroupOrder

_STYLES = {Standing.NEW: "magenta", Standing.GROWING: "yellow", Standing.REGRESSED: "red"}


@click.command()
@filters
@click.option(
    "--sort",
    type=click.Choice([order.value for order in GroupOrder]),
    default="letters",
    show_default=True,
    help="What comes first.",
)
@click.option("--skip", type=click.IntRange(0, 10_000), default=0, help="Leave out so many, as pages before.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@click.option("--closed", is_flag=True, help="Resolved and archived letters too.")
@click.option("--muted", is_flag=True, help="Also the groups that are muted.")
@as_json
@common
def groups(query: Query, sort: str, skip: int, limit: int, closed: bool, muted: bool, as_json: bool) -> None:
    """Group the open letters by root cause, the largest first, with the commands to look at each and to replay it.

    The first word below each is how it stands: new, growing, steady or quiet in the last day, or fixed, deployed,
    regressed, muted.

    \b
    redrive groups --newer-than 1h
    redrive groups --state exhausted
    redrive groups --closed               what is resolved or archived, too
    """
    everything = query.is_empty
    if query.states is None and not closed:
        query = replace(query, states=OPEN)
    page = {"limit": limit, "skip": skip, "order": GroupOrder(sort), "with_muted": muted}
    found, hidden = ask(lambda service: _asked(service, query, page))
    if as_json:
        tell_json({"groups": found, "muted": hidden})
    elif found:
        show(*_shown(found))
    if hidden and not muted and not as_json:
        say(f"{hidden} {'group is' if hidden == 1 else 'groups are'} muted; --muted shows them too.")
    if not found:
        say("no open letters; --closed shows what is resolved or archived" if everything else "no letter matches")
        raise click.exceptions.Exit(NOTHING)
    if len(found) == limit and not as_json:
        say(f"These are {limit}; --limit shows more, --skip {skip + limit} what follows.")


async def _asked(service: Home, query: Query, page: dict[str, Any]) -> tuple[Sequence[TrendView], int]:
    """The groups, and how many are muted."""
    found = await service.trends(query, **page)
    return found, len(await service.muted_groups())


def _shown(found: Sequence[TrendView]) -> list[RenderableType]:
    now, parts = datetime.now(UTC), list[RenderableType]()
    for group in found:
        parts += [_head(group), Padding(_below(group, now), (0, 0, 0, 4)), *_commands(group), ""]
    return parts[:-1]


def _head(group: TrendView) -> Text:
    why = error(group.error_type, group.message, 2 * width())
    return Text.assemble(Text(letters_said(group.count), style="bold cyan"), f"  {group.category}  ", why)


def _below(group: TrendView, now: datetime) -> Text:
    first, last = (f"{age(at, now)}{_in(version)}" for at, version in _ends(group))
    stands = Text(group.standing.value, style=_STYLES.get(group.standing, ""))
    told = Text.assemble(
        stands, "  ", states(group.states), "  in ", line(", ".join(group.sources)), f"  first {first}, last {last}"
    )
    if group.tenants:
        told.append_text(Text.assemble("\ntenants ", line(_tenants(group))))
    for said in standing(group, now):
        told.append_text(Text.assemble("\n", Text(plain(said), style="yellow")))
    return told


def _tenants(group: GroupView) -> str:
    """The first tenants that it hit, and how many more."""
    named, more = ", ".join(group.tenants[:5]), len(group.tenants) - 5
    return named + (f" and {more}{'' if group.is_all_tenants else '+'} more" if more > 0 else "")


def _ends(group: GroupView) -> list[tuple[datetime, str]]:
    return [(group.first_at, group.first_version), (group.last_at, group.last_version)]


def _in(version: str) -> str:
    return f" in {plain(version)}" if version else ""


def standing(group: GroupView, now: datetime) -> list[str]:
    """What was said of a group, and where it stands, a line each."""
    said, fix, mute = list[str](), group.fix, group.mute
    if group.assignee:
        said.append(f"{group.assignee} sees to it")
    if mute is not None:
        said.append(f"muted by {mute.by}, back {age(mute.until, now)}: {mute.why}")
    if fix is None:
        return said
    match fix.state:
        case GroupState.REGRESSED:
            said.append(f"regressed: fixed in {fix.version}, and letter {fix.letter} died on {fix.regressed_in}")
        case GroupState.DEPLOYED:
            what = f"replay {fix.replay} sends it back" if fix.replay else "it can be replayed"
            said.append(f"fixed in {fix.version}, which is deployed: {what}")
        case _:
            waits = "; ".join(group.waits_for[:3]) + ("; …" if len(group.waits_for) > 3 else "")
            said.append(f"fixed in {fix.version}, which is not deployed yet: {waits or 'looked at in a moment'}")
    return said


def _commands(group: GroupView) -> list[Text]:
    return [
        to_copy("    look    ", command("letters", "--group", group.id)),
        to_copy("    replay  ", command("replay", "--group", group.id)),
    ]
