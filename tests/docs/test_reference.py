"""The tables of the reference are what the code has."""

from __future__ import annotations

import errno
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import redrive
from redrive.config.durations import duration
from redrive.flow import classify, codes
from redrive.flow.foreign import read_foreign
from redrive.flow.texts import category_in
from redrive.model import Category
from tests.docs.samples import DOCS

POLICIES = DOCS / "reference" / "policies.md"
Table = dict[str, list[str]]


def section(page: Path, title: str) -> str:
    """What stands below that heading, samples left out."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.search(rf"^(#+) {re.escape(title)}$(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title!r}"
    return found[2]


def rows(text: str) -> list[list[str]]:
    """The cells of its tables, headings and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = {number for number, line in enumerate(lines) if line.startswith("| ---")}
    body = [line for number, line in enumerate(lines) if not {number, number + 1} & rules]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in body]


def named(title: str) -> Table:
    """What a section names in its second column, by its first."""
    return {cells[0]: re.findall(r"`([^`]+)`", cells[1]) for cells in rows(section(POLICIES, title))}


def by_category(table: Mapping[Any, Category]) -> Table:
    found: Table = defaultdict(list)
    for key, category in table.items():
        found[category].append(str(key))
    return dict(found)


def same(shown: Table, real: Table) -> bool:
    used = {category: sorted(names) for category, names in shown.items() if names}
    return used == {category: sorted(names) for category, names in real.items()}


def test_delays() -> None:
    text = section(POLICIES, "Backoff")
    [heading] = [line for line in text.splitlines() if line.startswith("| after attempt")]
    backoffs = [eval(one, vars(redrive) | _backoffs()) for one in re.findall(r"`([^`]+)`", heading)]
    table = [cells for cells in rows(text) if cells[0].isdigit()]
    assert len(table) == 8
    for attempt, *delays in table:
        assert [backoff.delay(int(attempt), Random()) for backoff in backoffs] == [duration(one) for one in delays]


def _backoffs() -> dict[str, object]:
    return {name: getattr(redrive, name) for name in ("immediate", "constant", "linear", "exponential")}


def test_defaults_of_a_policy() -> None:
    cells = {row[0].strip("`"): row[1] for row in rows(section(POLICIES, "Options"))}
    known = {"attempts", "backoff", "timeout", "ttl", "categories", "again", "holds", "on_death", "storm"}
    assert set(cells) == known | {"batch_failure"}
    policy = redrive.Policy()
    assert cells["attempts"] == f"`{policy.attempts}`"
    assert eval(cells["backoff"].strip("`"), _backoffs()) == policy.backoff
    assert cells["again"] == f"`{policy.again.attempts}`"


def test_categories() -> None:
    shown = {cells[0].strip("`"): cells[1] for cells in rows(section(POLICIES, "Categories"))}
    assert shown == {str(one): "yes" if one in classify.RETRYABLE else "no" for one in Category}


def test_codes() -> None:
    assert same(named("HTTP"), by_category(codes._HTTP))
    assert same(named("SMTP"), by_category(codes._SMTP))
    assert same(named("gRPC"), by_category(codes._GRPC))
    assert same(named("AWS, SES among it"), {str(kind): text.split() for kind, text in codes._AWS_NAMES.items()})


def test_types() -> None:
    telling = {kind.__name__: category for kinds, category in classify._SPECIFIC for kind in kinds}
    telling |= {name: category for (_, name), category in classify._NAMES.items()}
    assert same(named("Types that say everything"), by_category(telling))


def test_general_types_and_errnos() -> None:
    general = {kind.__name__: category for kinds, category in classify._GENERAL for kind in kinds}
    numbers = {_errno_name(number): category for number, category in classify._ERRNO.items()}
    shown: Table = defaultdict(list)
    for cells in rows(section(POLICIES, "General types")):
        shown[cells[0]] += re.findall(r"`([^`]+)`", cells[1])
    assert same(shown, by_category(general | numbers))


def _errno_name(number: int) -> str:
    """EDEADLK has two names, and the other is nobody's."""
    return "EDEADLK" if number == errno.EDEADLK else errno.errorcode[number]


def test_foreign_types() -> None:
    for category, names in named("Foreign errors").items():
        types = [name for name in names if name[0].isupper()]
        assert [read_foreign(name, "").category for name in types] == [category] * len(types)


def test_words() -> None:
    for category, words in named("Words").items():
        assert [category_in(word) for word in words] == [category] * len(words)
