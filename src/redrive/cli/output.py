"""Writes for people and for programs. Nothing of a message can drive the terminal it is shown in."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from redrive.cli.hints import placed

WIDE = 110
"""From this width on a table shows its less important columns too."""
_UNBOUNDED = 20_000
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What drives a terminal, turns the direction of what is written, or cannot be written."""
_STYLES = {
    "pending": "yellow",
    "retrying": "cyan",
    "replaying": "cyan",
    "running": "cyan",
    "sent": "cyan",
    "resolved": "green",
    "exhausted": "red",
    "failed": "red",
    "open": "red",
    "acknowledged": "yellow",
    "archived": "dim",
    "skipped": "dim",
    "cancelled": "dim",
}


def width() -> int:
    """The width of the terminal; without one, nothing is cut."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else _UNBOUNDED


def show(*parts: RenderableType, err: bool = False) -> None:
    """Show something to people, on stdout or stderr."""
    console = Console(
        file=io.StringIO(),
        width=width(),
        force_terminal=(sys.stderr if err else sys.stdout).isatty(),
        no_color=click.get_current_context().color is False or None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str) or _is_to_copy(part))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    text = "\n".join(line.rstrip() for line in written.splitlines())
    say(text) if err else write(f"{text}\n".encode(sys.stdout.encoding, "backslashreplace"))


def to_copy(about: str, text: str) -> Text:
    """A command to copy: only the terminal breaks it where it is too long, no line end of ours does."""
    return Text.assemble((about, "dim"), text, no_wrap=True)


def _is_to_copy(part: RenderableType) -> bool:
    return isinstance(part, Text) and part.no_wrap is True


def say(text: str) -> None:
    """Say something to people on stderr: messages, hints and questions."""
    click.echo(placed(text), err=True)


def tell_json(value: Any) -> None:
    """Write one JSON document for programs, on stdout."""
    write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write(data: bytes) -> None:
    """Write all of it to stdout, which, unbuffered (PYTHONUNBUFFERED), may silently take only a part."""
    left = memoryview(data)
    while left:
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


def table(*columns: str, right: Iterable[str] = (), folded: str | None = None) -> Table:
    """A light table; one column takes the width that is left, the last if no other is named."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for name in columns:
        whole = name != (folded or columns[-1])
        made.add_column(name, justify="right" if name in right else "left", no_wrap=whole, overflow="fold")
    return made


def pairs(lines: Iterable[tuple[str, Text]]) -> Table:
    """Names and their values, line by line."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in lines:
        made.add_row(name, value)
    return made


def line(text: str, most: int | None = None) -> Text:
    """A text of others as one line, cut where it gets too long for a terminal."""
    joined = " ".join(plain(text).split())
    return Text(joined if most is None or len(joined) <= most else f"{joined[: most - 1]}…")


def plain(text: str) -> str:
    """The text with control characters as escapes; tabs and line ends stay."""
    return _CONTROLS.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def error(kind: str, message: str, most: int | None = None) -> Text:
    """An error as `ValueError: no such thing`."""
    return Text.assemble(Text(plain(kind), style="bold"), ": ", line(message, most))


def state(name: str) -> Text:
    return Text(name, style=_STYLES.get(name, ""))


def states(counts: dict[Any, int]) -> Text:
    """Counts as `pending 1,100 · exhausted 104`."""
    parts = [Text.assemble(state(str(name)), f" {count:,}") for name, count in counts.items() if count]
    return Text(" · ").join(parts)


def age(at: datetime | None, now: datetime | None = None) -> str:
    """A time as `3m ago`, or `in 3m`."""
    if at is None:
        return ""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    return f"in {_span(-seconds)}" if seconds < -1 else f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size or (unit == "m" and seconds >= size):
            return f"{int(seconds // size)}{unit}"
    return f"{max(int(seconds), 0)}s"


def letters_said(count: int) -> str:
    return "1 letter" if count == 1 else f"{count:,} letters"
