"""The words of the glossary are the words of the code."""

from __future__ import annotations

import re
from enum import Enum, StrEnum
from typing import get_args

import pytest

from redrive.cli import main
from redrive.model import Category, Outcome, Reason, State
from redrive.stores.base import EntryStatus
from redrive.transports.base import SendStatus
from redrive.transports.rabbitmq.redelivery import Redelivery
from tests.docs.samples import DOCS

_ROW = re.compile(r"^\| \*\*(?P<word>[\w -]+)\*\* \| (?P<meaning>.+) \|$", re.MULTILINE)
_COMMAND = re.compile(r"`redrive (\w[\w-]*)")


def glossary() -> dict[str, str]:
    return {row["word"]: row["meaning"] for row in _ROW.finditer((DOCS / "glossary.md").read_text())}


def listed(word: str) -> set[str]:
    """What stands after the colon of its meaning."""
    return set(glossary()[word].rpartition(": ")[2].split(", "))


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("state", State),
        ("category", Category),
        ("reason", Reason),
        ("ledger", EntryStatus),
        ("send result", SendStatus),
        ("redelivery", Redelivery),
    ],
)
def test_the_values_of_a_word_are_those_of_the_code(word: str, kind: type[Enum]) -> None:
    assert listed(word) == {str(value) if isinstance(value, StrEnum) else value.name.lower() for value in kind}


def test_the_outcomes_are_those_of_the_code() -> None:
    assert listed("outcome") == {kind.__name__.lower() for kind in get_args(Outcome)}


def test_states_are_explained_in_the_life_of_a_message() -> None:
    text = (DOCS / "life-of-a-message.md").read_text()
    assert set(re.findall(r"^\| (\w+) \|", text, re.MULTILINE)) - {"state"} == {str(one) for one in State}


@pytest.mark.parametrize("word", ["retry", "replay", "archive", "purge"])
def test_what_names_a_command_is_one(word: str) -> None:
    assert word in main.list_commands(main.make_context("redrive", ["--help"], resilient_parsing=True))


def test_every_command_that_the_pages_name_exists() -> None:
    commands = set(main.list_commands(main.make_context("redrive", ["--help"], resilient_parsing=True)))
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        assert set(_COMMAND.findall(page.read_text())) <= commands, page


def test_every_name_is_found_in_the_code() -> None:
    code = "\n".join(path.read_text() for path in (DOCS.parent / "src").rglob("*.py")).lower()
    names = re.findall(r"\*\*([\w -]+)\*\*", (DOCS / "glossary.md").read_text())
    missing = [name for name in names if not re.search(rf"\b{re.sub('[ -]', '[ _-]?', name)}s?\b", code)]
    assert len(names) > 60
    assert missing == []
