"""`redrive edit`: the body and headers of one letter, in an editor; every version is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from redrive.cli.apps import find_app
from redrive.cli.completing import a_letter
from redrive.cli.confirm import confirm
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.options import yes as yes_option
from redrive.cli.output import plain, say, show, tell_json
from redrive.cli.session import actor, ask, command
from redrive.errors import UsageError
from redrive.flow.fits import fits
from redrive.forensics.carried import CarriedMessage, message_of
from redrive.forensics.editing import NotEditable, difference, from_edit, is_text, to_edit
from redrive.model import Headers, Version
from redrive.private import open_private
from redrive.service.changes import Change, change_of_masked

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
an_app = click.option(
    "--app", "target", metavar="MODULE:NAME", help="The app whose handlers have to be able to decode what is kept."
)


@click.command()
@click.argument("id", shell_complete=a_letter)
@click.option(
    "--body",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="The new body, byte for byte, and no editor (- is stdin).",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Set a header; NAME= removes it.")
@click.option("--undo", is_flag=True, help="Take back the last edit.")
@click.option("--to", type=int, metavar="VERSION", help="With --undo: back to this version (0: as it came).")
@click.option("--reason", default="", help="Why; it is kept with the version.")
@an_app
@yes_option
@as_json
@common
def edit(
    id: str,
    body: Path | None,
    headers: tuple[str, ...],
    undo: bool,
    to: int | None,
    reason: str,
    target: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Change the body or headers of a letter: in $EDITOR, or from a file. Shows what changes, and asks.

    Secrets are shown as they are: what you see is what is sent. Every version is kept, and --undo takes it back.

    \b
    redrive edit 4kq2m7pxw3ab
    redrive edit 4kq2m7pxw3ab --body fixed.json --reason "the total was a text"
    redrive edit 4kq2m7pxw3ab --undo
    """
    if (undo and (body or headers)) or (to is not None and not undo):
        raise click.UsageError("--undo takes the letter and --to, and neither --body nor --header")
    if undo:
        done = ask(lambda service: service.changes.undo(id, actor=actor(), to=to))
    else:
        found = ask(lambda service: service.message(id, actor=actor(), reason=reason or "redrive edit"))
        change = replace(_changed(found, body, headers), why=reason)
        _check(found, change, target)
        _shown(found, change, yes=yes)
        done = ask(lambda service: service.changes.make(found.letter, change, actor=actor()))
    if as_json:
        tell_json({"id": done.id, "version": done.version})
    else:
        say(f"{done.id} has version {done.version}. `{command('edit', done.id, '--undo')}` takes it back.")


def _changed(found: CarriedMessage, body: Path | None, headers: tuple[str, ...]) -> Change:
    """What is to change. Of a message whose secrets are masked only what was changed is sent: the rest stays."""
    change = Change(version=found.version)
    if body is None and not headers:
        return _in_editor(found)
    new = None if body is None else _read(body)
    if found.redacted:
        return replace(change, body=new, some_headers=tuple((name, value or None) for name, value in _pairs(headers)))
    return replace(change, body=new, headers=_with(message_of(found).headers, _pairs(headers)))


def _check(found: CarriedMessage, change: Change, target: str | None) -> None:
    """Refuse what no handler of the app could decode."""
    if target is None:
        return
    if change.body is None and found.redacted:
        raise Stopped("--app decodes the whole body, and what you see of it is masked: leave it out, or give --body")
    message = message_of(found)
    new = replace(
        message,
        body=message.body if change.body is None else change.body,
        headers=message.headers if change.headers is None else change.headers,
    )
    if (why := fits(find_app(target).handlers)(new)) is not None:
        raise UsageError(f"{found.letter} cannot be edited so: {why}")


def _read(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise Stopped(f"{path} cannot be read: {error.strerror}") from None


def _pairs(given: tuple[str, ...]) -> list[tuple[str, bytes]]:
    pairs = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--header {text}: write it as NAME=VALUE, or NAME= to remove it")
        pairs.append((name, value.encode("utf-8", "surrogateescape")))
    return pairs


def _with(before: Headers, pairs: list[tuple[str, bytes]]) -> Headers:
    names = {name for name, _ in pairs}
    return tuple(pair for pair in before if pair[0] not in names) + tuple(pair for pair in pairs if pair[1])


def _in_editor(found: CarriedMessage) -> Change:
    """What somebody made of it. Text that cannot be kept is opened again, and never thrown away."""
    message = message_of(found)
    if not is_text(message.body):
        raw = command("show", found.letter, "--raw-body", "FILE")
        raise Stopped(
            f"the body is binary, {len(message.body):,} bytes: write it to a file with\n{raw}\nchange that, and give "
            f"it back with {command('edit', found.letter, '--body', 'FILE')}"
        )
    text = to_edit(message.headers, message.body)
    while True:
        saved = click.edit(text, extension=".txt", require_save=False)
        if saved is None:
            raise Stopped("nothing was changed", NOTHING)
        try:
            headers, body = from_edit(saved, message.headers, message.body)
            change = Change(version=found.version, body=body, headers=headers)
            return change_of_masked(message, change) if found.redacted else change
        except NotEditable as error:
            say(plain(str(error)))
            _open_again(saved)
            text = saved


def _open_again(saved: str) -> None:
    """Ask whether to go on; what was written is kept in a file, if not."""
    if sys.stdin.isatty() and click.confirm("Open the editor again?", default=True, err=True):
        return
    path = Path(click.get_app_dir("redrive")) / "edit.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_private(path, "wb") as file:
        file.write(saved.encode())
    raise Stopped(f"nothing was changed; what you wrote is in {path}", NOTHING)


def _shown(found: CarriedMessage, change: Change, *, yes: bool) -> None:
    if found.redacted:
        diff = ask(lambda service: service.changes.preview(found.letter, change, actor=actor())).diff
    else:
        diff = _difference(found, change)
    if not diff:
        raise Stopped("nothing was changed", NOTHING)
    show(*coloured(diff), err=True)
    confirm(f"Keep this as version {found.version + 1} of {found.letter}?", yes=yes)


def _difference(found: CarriedMessage, change: Change) -> list[str]:
    message = message_of(found)
    body = message.body if change.body is None else change.body
    headers = message.headers if change.headers is None else change.headers
    if (headers, body) == (message.headers, message.body):
        return []
    old = Version(found.letter, found.version, message.headers, len(message.body), None, message.body)
    return difference(old, Version(found.letter, found.version + 1, headers, len(body), None, body))


def coloured(diff: list[str]) -> list[RenderableType]:
    """The lines of a difference, as a terminal shows them."""
    return [Text(plain(line), style=_COLOURS.get(line[:1], "")) for line in diff]
