"""Until the package is published, no page sends a reader to an index of packages."""

from __future__ import annotations

import re

from tests.docs.samples import ROOT

_FROM_AN_INDEX = re.compile(r"pip\s+install\s+(?:-\S+\s+)*'?redrive\b")


def test_every_page_and_example_installs_from_the_clone() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.*")]
    found = [f"{page.relative_to(ROOT)}: {match[0]}" for page in pages for match in _matches(page.read_bytes())]
    assert found == []


def _matches(data: bytes) -> list[re.Match[str]]:
    return list(_FROM_AN_INDEX.finditer(data.decode("utf-8", "replace")))


def test_a_page_that_would_is_found() -> None:
    for text in ("pip install redrive", "pip  install 'redrive[kafka]'", "pip install -U redrive"):
        assert _matches(text.encode())
    for text in ("pip install .", "pip install '.[kafka]'", "pip install redriver"):
        assert not _matches(text.encode())
