"""The samples of a page: every fenced block, and what is to be done with it.

python     run; if its first line is a comment that names a file (`# shop.py`), written under that name instead
console    each line is a command; `^C` is Ctrl-C to the one that still runs
text, json directly below a console block: what its commands print, `…` standing for what is left out
others     for the reader; written if the first line names a file, as above
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (?P<name>[\w./-]+\.\w+)")
_RUN = ("python", "console")
_SHOWN = ("text", "json")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file it is, if it says so."""
        found = _FILE.fullmatch(self.text.partition("\n")[0].strip())
        return found["name"] if found and self.language != "console" else None

    @property
    def commands(self) -> list[str]:
        """The lines of a console block; one that ends in a backslash goes on."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        return [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Step:
    """A block, and below it what it prints, where the page shows that."""

    block: Block
    shown: str | None = None
    stays: bool = False  # it runs until the Ctrl-C that comes next


def pages() -> list[Path]:
    """README.md and every page of the documentation."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Every fenced block, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["language"], found["text"])
        for found in _FENCE.finditer(text)
    ]


def steps(page: Path) -> list[Step]:
    """What is to be done, in order."""
    found = blocks(page)
    pairs = zip_longest(found, found[1:])
    done = [(one, _output(one, after)) for one, after in pairs if one.language in _RUN or one.file is not None]
    return [
        Step(block, shown, _is_stopped(block, after)) for (block, shown), after in zip_longest(done, _blocks(done[1:]))
    ]


def _blocks(done: list[tuple[Block, str | None]]) -> list[Block]:
    return [block for block, _ in done]


def _is_stopped(block: Block, after: Block | None) -> bool:
    """A replay that the page interrupts."""
    stopped = after is not None and after.language == "console" and after.commands[:1] == ["^C"]
    return stopped and block.language == "console" and block.text.startswith("redrive replay ")


def _output(block: Block, after: Block | None) -> str | None:
    """What the block below shows, if nothing but it stands there."""
    if block.language != "console" or after is None or after.language not in _SHOWN:
        return None
    end = block.line + block.text.count("\n") + 1
    between = block.page.read_text().splitlines()[end : after.line - 1]
    return None if any(line.strip() for line in between) else after.text
