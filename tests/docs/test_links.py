"""Every link inside the documentation leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.samples import ROOT, pages

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"^(`{3,}).*?^\1$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
_ELSEWHERE = ("http://", "https://", "mailto:")


def prose(page: Path) -> str:
    """The page without its samples."""
    return _CODE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """What a link to a heading of that page may say, as mkdocs makes it."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {_anchor(found["title"]) for found in _HEADING.finditer(text)}


def _anchor(title: str) -> str:
    words = re.sub(r"[^\w\s-]", "", title.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


def broken(page: Path) -> Iterator[str]:
    for found in _LINK.finditer(prose(page)):
        target, _, anchor = found["target"].partition("#")
        file = page if not target else (page.parent / target).resolve()
        if found["target"].startswith(_ELSEWHERE):
            continue
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            yield found["target"]


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []
