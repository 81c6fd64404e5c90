"""What is masked and what is not, as numbers and as the tables of docs/reference/redaction.md."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import NamedTuple

from redrive.forensics.redact import Redactor
from tests.redaction.carriers import CARRIERS, FOR_LOOKS, is_seen
from tests.redaction.harmless import harmless
from tests.redaction.kinds import KEYED, LOOKS, ODD, secrets


class Cell(NamedTuple):
    """One secret in one carrier."""

    carrier: str
    kind: str
    by_key: bool
    masked: bool


@cache
def cells() -> list[Cell]:
    """Every secret in every carrier that can hold it."""
    redactor, found = Redactor(), list[Cell]()
    for secret in secrets():
        carriers = CARRIERS if secret.by_key else CARRIERS | FOR_LOOKS
        for name, carrier in carriers.items():
            shown = redactor.body(carrier(secret.key, secret.value), limit=1 << 20)
            found.append(Cell(name, secret.kind, secret.by_key, not is_seen(shown, secret.hidden)))
    return found


@cache
def wrong() -> list[tuple[str, str, str]]:
    """Each harmless text that is not shown as it is: its family, the text, and what is shown."""
    redactor = Redactor()
    shown = ((family, text, redactor.body(text.encode(), limit=1 << 20)) for family, text in harmless())
    return [(family, text, masked) for family, text, masked in shown if masked != text]


def carriers_table() -> str:
    """One row for each carrier: how many of those known by their key and by their looks are masked, and what is not."""
    head = ["| carrier | known by the key | known by the looks | not masked |", "| --- | ---: | ---: | --- |"]
    rows = [_row(name) for name in CARRIERS | FOR_LOOKS]
    masked, total = sum(cell.masked for cell in cells()), len(cells())
    share = f"{masked:,} of {total:,} ({masked / total:.2%})"
    count = f"{len(secrets())} secrets of {len(LOOKS) + len(KEYED) + len(ODD)} kinds"
    return "\n".join([f"{count} in {len(CARRIERS | FOR_LOOKS)} carriers: {share} are masked.", "", *head, *rows])


def _row(name: str) -> str:
    here = [cell for cell in cells() if cell.carrier == name]
    missed = sorted({cell.kind for cell in here if not cell.masked})
    return f"| {name} | {_share(here, True)} | {_share(here, False)} | {'; '.join(missed)} |"


def _share(here: list[Cell], by_key: bool) -> str:
    those = [cell.masked for cell in here if cell.by_key is by_key]
    return f"{sum(those)} of {len(those)}" if those else ""


def harmless_table() -> str:
    """One row for each family of harmless texts: how many, and how many are masked wrongly."""
    families = Counter(family for family, _ in harmless())
    bad = Counter(family for family, _, _ in wrong())
    rows = [f"| {family} | {count:,} | {bad[family]} |" for family, count in families.items()]
    total, all_bad = sum(families.values()), sum(bad.values())
    head = ["| texts | number | masked wrongly |", "| --- | ---: | ---: |"]
    return "\n".join([*head, *rows, f"| together | {total:,} | {all_bad} ({all_bad / total:.2%}) |"])


def kinds_list() -> str:
    """The kinds that are known by their looks."""
    return "; ".join(LOOKS)
