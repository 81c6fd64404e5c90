"""Pure: a message as a person edits it, what came of that, and the difference between two versions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Any

from msgspec import UNSET, Struct

from redrive.errors import UsageError
from redrive.forensics.jsonpatch import Operation, patched, same
from redrive.forensics.jsontext import Kind, NotJson, Token, indented, tokens
from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import MASK
from redrive.model import Edit, Headers, Letter, Version, version_of
from redrive.untrusted import TooDeep, is_too_deep

MOST_LINES = 400
_LONGEST_DIFFED = 2 << 20
_RULE = "--- body ---"
UNSEEN = "nothing that is shown differs: what is masked may, or white space"
_HEADERS = "# Headers: one `name: value` on each line. What is below the line of dashes is the body."


class NotEditable(UsageError):
    """The text is not what an editor was given to edit."""


def is_text(data: bytes) -> bool:
    """Whether an editor can show it and give it back as it was."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return not any(ord(char) < 32 and char not in "\t\n\r" for char in text)


def to_edit(headers: Headers, body: bytes) -> str:
    """What an editor shows: the headers that are text, a line of dashes, the body; JSON over several lines."""
    lines = [f"{name}: {value.decode()}" for name, value in headers if _is_line(name, value)]
    return "\n".join([_HEADERS, *lines, _RULE, indented(body.decode())])


def from_edit(text: str, headers: Headers, body: bytes) -> tuple[Headers, bytes]:
    """What somebody made of it. Headers that the editor did not show stay; JSON is written as the body was before."""
    head, rule, rest = text.partition(f"\n{_RULE}\n")
    if not rule:
        head, rule, rest = text.partition(f"\n{_RULE}")
    if not rule:
        raise NotEditable(f"the line {_RULE!r} between the headers and the body is gone")
    shown = to_edit(headers, body)
    if shown.removesuffix("\n") == text.removesuffix("\n"):
        return headers, body
    hidden = [pair for pair in headers if not _is_line(*pair)]
    pairs = [_pair(line) for line in head.splitlines() if line.strip() and not line.startswith("#")]
    was = shown.partition(f"\n{_RULE}\n")[2]
    if rest.removesuffix("\n") == was.removesuffix("\n"):
        return _in_order(headers, pairs, hidden), body
    return _in_order(headers, pairs, hidden), _restyled(rest, body)


def _is_line(name: str, value: bytes) -> bool:
    if not is_text(value) or b"\n" in value or b"\r" in value or value != value.strip():
        return False
    return bool(name) and name == name.strip() and ":" not in name and "\n" not in name and not name.startswith("#")


def _pair(line: str) -> tuple[str, bytes]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise NotEditable(f"{line[:80]!r} is no header: write it as `name: value`")
    return name.strip(), value.strip().encode()


def _in_order(before: Headers, pairs: Sequence[tuple[str, bytes]], hidden: Sequence[tuple[str, bytes]]) -> Headers:
    shown = tuple(pair for pair in before if _is_line(*pair))
    return before if tuple(pairs) == shown else (*pairs, *hidden)


def _restyled(text: str, like: bytes) -> bytes:
    """The edited text as bytes: JSON in one line if the body was, anything else as it is."""
    text = text if like.endswith(b"\n") else text.removesuffix("\n")
    try:
        before = list(tokens(like.decode()))
    except NotJson:
        return text.encode()
    try:
        after = list(tokens(text))
    except NotJson as error:
        raise NotEditable(f"the body was JSON and is none any more: {error}") from None
    if any("\n" in token.space for token in before):
        return text.encode()
    gap = " " if any(token.space for token in before) else ""
    return "".join(_in_line(after, gap)).encode()


def _in_line(line: Iterable[Token], gap: str) -> Iterable[str]:
    for token in line:
        yield token.text + (gap if token.kind in (Kind.COMMA, Kind.COLON) else "")


def patch_body(body: bytes, patch: Sequence[Operation], redactor: Redactor | None = None) -> bytes:
    """The body after a JSON Patch. It is applied to the real body, and can read nothing that the redactor masks:
    neither by an operation, nor by a change beside a secret (of its key, say) that makes it look harmless."""
    if is_too_deep(body):
        raise UsageError(f"a patch cannot change this body, which has {TooDeep()}: send a new `body`")
    try:
        document = json.loads(body)
    except ValueError:
        raise UsageError("the body is no JSON: a patch cannot change it, so send a new `body`") from None
    shown = UNSET if redactor is None else _shown(body, redactor)
    new = patched(document, patch, shown)
    gap = ("," + " " * (b", " in body[:4096]), ":" + " " * (b'": ' in body[:4096]))
    made = json.dumps(new, ensure_ascii=False, separators=gap, allow_nan=False).encode()
    if redactor is not None and not _hides(_shown(made, redactor), patched(shown, patch), new):
        raise UsageError("what is masked for you would be shown after that: give it a new value, or leave it as it is")
    return made


def _hides(shown: Any, masked: Any, real: Any) -> bool:
    """Whether all that stands masked in one document, the same as the real one but for that, is masked in what is shown
    of the real one, too."""
    if same(masked, real) or same(shown, masked) or shown == MASK:
        return True
    if isinstance(shown, dict) and isinstance(masked, dict) and isinstance(real, dict):
        if shown.keys() == masked.keys() == real.keys():
            return all(_hides(shown[name], masked[name], real[name]) for name in real)
    elif isinstance(shown, list) and isinstance(masked, list) and isinstance(real, list):
        return len(shown) == len(masked) == len(real) and all(map(_hides, shown, masked, real))
    return False


def _shown(body: bytes, redactor: Redactor) -> Any:
    try:
        return json.loads(redactor.body(body, limit=20 * len(body) + 1000))  # a mask may be longer than what it masks
    except ValueError:  # too long to be masked token by token: nothing of it may be read
        return MASK


def is_masked(text: str, original: str) -> bool:
    """Whether a text says `[redacted]` where the original did not: somebody sends back what he was shown."""
    return text.count(MASK) > original.count(MASK)


class VersionView(Struct, frozen=True, kw_only=True):
    """A version of a letter's message, as it is shown."""

    number: int
    size: int
    edit: Edit | None
    is_sent: bool  # it is the newest: what goes back
    diff: list[str]  # to the version before it, masked


def version_views(letter: Letter, older: Sequence[Version], redactor: Redactor) -> list[VersionView]:
    """All versions of a letter, the oldest first, each with what it changed."""
    versions = [*older, version_of(letter)]
    before: list[Version | None] = [None, *versions]
    return [
        VersionView(
            number=version.number,
            size=version.size,
            edit=version.edit and _masked_edit(version.edit, redactor),
            is_sent=version.number == letter.version,
            diff=[] if old is None else difference(old, version, redactor),
        )
        for old, version in zip(before, versions, strict=False)
    ]


def _masked_edit(edit: Edit, redactor: Redactor) -> Edit:
    return Edit(edit.by, edit.at, redactor.text(edit.why), edit.repair, edit.restores)


def difference(old: Version, new: Version, redactor: Redactor | None = None) -> list[str]:
    """The lines that differ, as `diff -u` has them; masked, if there is a redactor."""
    if max(old.size, new.size) > _LONGEST_DIFFED:
        return [f"the body had {old.size:,} bytes and has {new.size:,}: too long to be compared here"]
    before, after = (_lines(version, redactor) for version in (old, new))
    names = (f"version {old.number}", f"version {new.number}")
    lines = list(islice(unified_diff(before, after, *names, lineterm="", n=2), MOST_LINES + 1))
    if not lines and (old.body, old.headers) != (new.body, new.headers):
        return [UNSEEN]
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], "…"]


def _lines(version: Version, redactor: Redactor | None) -> list[str]:
    headers = [
        f"{name if redactor is None else redactor.text(name)}: {_value(name, value, redactor)}"
        for name, value in version.headers
    ]
    if redactor is not None:
        body = redactor.body(version.body)
    else:
        body = version.body.decode() if is_text(version.body) else f"binary, {version.size:,} bytes"
    return [*headers, "", *indented(body).splitlines()]


def _value(name: str, value: bytes, redactor: Redactor | None) -> str:
    if redactor is not None:
        return redactor.header(name, value)
    return value.decode() if is_text(value) else repr(value)[2:-1]
