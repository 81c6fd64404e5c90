"""`redrive alerts`: who is told, of what, and whether it arrives."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import click
from msgspec import Struct
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from redrive.alerts.masking import UrlMask
from redrive.alerts.model import Alert, Kind, Notice, Notifier, Severity, Undelivered
from redrive.alerts.notifiers import open_notifier
from redrive.alerts.rules import RULES, Rule
from redrive.cli.exits import NOTHING, WRONG, Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import line, show, table, tell_json
from redrive.cli.session import loaded
from redrive.config.settings import Alerts as Thresholds
from redrive.forensics.secrets import hidden_url

_PATIENCE = 30.0


class Tried(Struct, frozen=True):
    """What became of a test alert."""

    notifier: str
    url: str
    arrived: bool
    why: str = ""


class Described(Struct, frozen=True):
    """A rule with its threshold as it is set."""

    name: str
    severity: Severity
    setting: str
    on: bool
    when: str


@click.group()
@common
def alerts() -> None:
    """Who is told when something goes wrong (setting: alerts.urls), and of what."""


@alerts.command("test")
@as_json
@common
def test(as_json: bool) -> None:
    """Send a test alert to every notifier, resolve it at once, and say whether it arrived.

    Exit codes: 0 all of them took it; 1 one did not; 2 there is none.
    """
    urls = dict.fromkeys(loaded().settings.alerts.urls)
    if not urls:
        raise Stopped(
            "nobody is to be told: set `alerts.urls` (REDRIVE_ALERTS_URLS), such as pagerduty://KEY\n"
            "or alertmanager+http://localhost:9093",
            WRONG,
        )
    with UrlMask(urls) as mask:
        tried = asyncio.run(_try_all([(url, open_notifier(url)) for url in urls], mask))
    tell_json({"notifiers": tried}) if as_json else show(_shown(tried))
    if not all(result.arrived for result in tried):
        raise click.exceptions.Exit(NOTHING)


@alerts.command("rules")
@as_json
@common
def rules(as_json: bool) -> None:
    """List the rules: what is an alert, how severe it is, and the setting that moves or ends it."""
    chosen = loaded().settings.alerts
    found = [_described(rule, chosen) for rule in RULES]
    if as_json:
        tell_json({"rules": found})
        return
    made = table("RULE", "SEVERITY", "SETTING", "WHEN")
    for rule in found:
        made.add_row(rule.name, str(rule.severity), rule.setting, Text(rule.when) if rule.on else Text("off", "dim"))
    show(made)


def _described(rule: Rule, chosen: Thresholds) -> Described:
    on = rule.is_on(chosen) and rule.severity.reaches(Severity(chosen.severity))
    return Described(rule.name, rule.severity, rule.setting, on, rule.about(chosen) if rule.is_on(chosen) else "")


async def _try_all(notifiers: list[tuple[str, Notifier]], mask: UrlMask) -> list[Tried]:
    return list(await asyncio.gather(*(_try(*notifier, mask) for notifier in notifiers)))


async def _try(url: str, notifier: Notifier, mask: UrlMask) -> Tried:
    why = ""
    try:
        async with asyncio.timeout(_PATIENCE):
            for notice in _test_notices():
                await notifier.notify([notice])
    except TimeoutError:
        why = f"no answer within {_PATIENCE:g} s"
    except Undelivered as error:
        why = mask.text(str(error))
    finally:
        await notifier.aclose()
    return Tried(notifier.name, hidden_url(url), not why, why)


def _test_notices() -> list[Notice]:
    now = datetime.now(UTC)
    alert = Alert(
        key=f"Test:{now.isoformat()}",
        name="Test",
        severity=Severity.INFO,
        summary="this is a test of `redrive alerts test`: nothing is wrong",
        starts_at=now,
    )
    opened = Notice(id=f"{alert.key}-1", kind=Kind.OPENED, alert=alert, count=1, since=1)
    over = replace(alert, resolved_at=now)
    return [opened, Notice(id=f"{alert.key}-2", kind=Kind.RESOLVED, alert=over, count=1, since=0, by="test")]


def _shown(tried: list[Tried]) -> Table:
    made = table("NOTIFIER", "ARRIVED", "WHY NOT")
    for result in tried:
        arrived = Text("yes", "green") if result.arrived else Text("no", "red")
        made.add_row(result.url, arrived, line(result.why))
    return made
