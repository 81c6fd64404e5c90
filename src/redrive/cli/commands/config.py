"""`redrive config`: every setting, its value and where it came from."""

from __future__ import annotations

import click
import msgspec
from rich.text import Text

from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import WIDE, show, table, tell_json, width
from redrive.cli.session import loaded
from redrive.forensics.redact import Redactor


@click.command()
@as_json
@common
def config(as_json: bool) -> None:
    """Print every setting: its value, where that came from, and its name in the environment. Secrets are masked."""
    found, redactor = loaded(), Redactor()
    lines = [msgspec.structs.replace(setting, value=redactor.text(setting.value)) for setting in found.describe()]
    if as_json:
        tell_json({"file": None if found.file is None else str(found.file), "settings": lines})
        return
    wide = width() >= WIDE
    made = table("SETTING", *(("ENVIRONMENT",) if wide else ()), "FROM", "VALUE")
    for setting in lines:
        style = "" if setting.source == "default" else "bold"
        extra = (setting.environ,) if wide else ()
        made.add_row(setting.path, *extra, Text(setting.source, style=style), Text(setting.value, style=style))
    show(f"file: {found.file or 'none (redrive.toml would be read from here)'}", "", made)
    if not wide:
        show("", "In the environment admin.port is REDRIVE_ADMIN_PORT, and so with every other.")
