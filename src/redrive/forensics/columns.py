"""Secrets that do not stand beside their key but in its column: rows of SQL, parameters of a statement, CSV.

`INSERT INTO users (name, password) VALUES ('ann', 'S')`, SQLAlchemy's `[SQL: … SET password=?] [parameters: ('S',)]`
and tables whose first line names `password`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from redrive.forensics.secrets import NOTHING

_INTO = re.compile(
    r"into\s{1,8}[\w.\"`\[\]\\]{1,128}+\s{0,8}\((?P<names>[^()]{1,4096}+)\)\s{0,8}(?P<values>values\s{0,8}(?=\())?",
    re.I,
)
_PARAMETERS = re.compile(r"\](?:\\n|\s){1,8}\[parameters: ")
_MARKED = re.compile(r"(?:(?P<name>\w{1,64})[\"`\]]?\s{0,4}=\s{0,4})?(?<![\w'\"])(?P<mark>\?|%s|\$(?P<number>\d{1,4}))")
_TOKEN = re.compile(
    r"(?P<text>[bBNn]?(?:'(?:[^'\\]|\\.|'')*+'|\"(?:[^\"\\]|\\.)*+\"))|(?P<open>['\"])|(?P<mark>[(),\[\]])|(?P<plain>[^(),\[\]'\"]++)",
    re.DOTALL,
)
_PLACES = re.compile(r"\s*(?:\?|%s?|\$\d+|:\w+|%\(\w+\)s|@\w+|default|now\(\))\s*\Z", re.IGNORECASE)
_LONGEST_STATEMENT = 8192
_LONGEST_HEAD = 2048
_HEAD = re.compile(
    r"\"?[^\W\d][\w .-]{0,40}\"?(?:(?P<mark>[,;\t|])\"?[^\W\d][\w .-]{0,40}\"?)(?:(?P=mark)\"?[^\W\d][\w .-]{0,40}\"?)*+(?=\r?\n)"  # noqa: E501
)
_CELL = {mark: re.compile(rf"\"(?:[^\"\n]|\"\")*+\"|[^{re.escape(mark)}\r\n]*+") for mark in ",;\t|"}

Kind = Callable[[str], str]


def in_columns(text: str, lower: str, kind: Kind) -> Iterator[tuple[int, int]]:
    """Where they are."""
    if "values" in lower and "into" in lower:
        yield from _inserted(text, lower, kind)
    if "[parameters: " in text:
        yield from _bound(text, kind)
    yield from _in_table(text, kind)


def _inserted(text: str, lower: str, kind: Kind) -> Iterator[tuple[int, int]]:
    place = lower.find("into")
    while place >= 0:
        found = _INTO.match(text, place)
        done = place + 4
        if found is not None:
            done = found.end()
            if found["values"] and (secret := _secret(_names(found["names"]), kind)):
                for start, end in _rows(text, found.end(), secret):
                    yield start, end
                    done = end
        place = lower.find("into", done)


def _names(names: str) -> list[str]:
    return [name.strip().strip('"`[]\\') for name in names.split(",")]


def _secret(names: list[str], kind: Kind) -> dict[int, str]:
    return {index: kind(name) for index, name in enumerate(names) if name and kind(name)}


def _counts(kind: str, said: str) -> bool:
    """Whether that is one; under a word that is one of prose, too, as `pass`, only what looks mixed."""
    if said.lower() in NOTHING:
        return False
    return kind != "weak" or (len(said) >= 6 and any(map(str.isdigit, said)))


def _rows(text: str, place: int, secret: dict[int, str]) -> Iterator[tuple[int, int]]:
    """The secret values of rows in brackets, one behind the other, to the first that is none."""
    level = index = 0
    for found in _TOKEN.finditer(text, place):
        mark = found["mark"]
        if found["open"]:  # a text that is cut off
            if level and index in secret:
                yield found.end(), len(text)
            return
        if mark in ("(", "["):
            level += 1
            index = 0 if mark == "(" and level <= 2 else index
        elif mark in (")", "]"):
            level -= 1
            index = 0
            if level < 0:
                return
        elif mark == ",":
            index += level > 0
        elif level == 0 and found[0].strip():
            return
        elif level and index in secret and not _PLACES.match(found[0]):
            start, end = _inner(found)
            if _counts(secret[index], text[start:end]):
                yield start, end


def _inner(found: re.Match[str]) -> tuple[int, int]:
    said = found[0].strip()
    start = found.start() + len(found[0]) - len(found[0].lstrip())
    end = start + len(said)
    if found["text"]:
        start, end = start + 1 + (said[0] not in "'\""), end - 1
    return start, end


def _bound(text: str, kind: Kind) -> Iterator[tuple[int, int]]:
    """SQLAlchemy tells the statement, and what was bound to it behind it."""
    for found in _PARAMETERS.finditer(text):
        least = max(found.start() - _LONGEST_STATEMENT, 0)
        start = text.rfind("[SQL: ", least, found.start())
        if start >= 0 and (secret := _marked(text[start : found.start()], kind)):
            yield from _rows(text, found.end(), secret)


def _marked(statement: str, kind: Kind) -> dict[int, str]:
    """Which of its marks stand for a secret."""
    into = _INTO.search(statement)
    names = _names(into["names"]) if into is not None and into["values"] else []
    secret: dict[int, str] = {}
    for order, found in enumerate(_MARKED.finditer(statement)):
        index = int(found["number"]) - 1 if found["number"] else order
        name = found["name"] or (names[order] if order < len(names) else "")
        if name and kind(name):
            secret[index] = kind(name)
    return secret


def _in_table(text: str, kind: Kind) -> Iterator[tuple[int, int]]:
    """Rows below a first line that names them."""
    head = _HEAD.match(text, 0, _LONGEST_HEAD)
    if head is None:
        return
    mark = head["mark"]
    names = _names(head[0].replace(mark, ","))
    secret = _secret(names, kind)
    place = text.find("\n", head.end()) + 1
    while secret and 0 < place < len(text):
        cells, at = list[tuple[int, int]](), place
        while len(cells) <= len(names) and (cell := _CELL[mark].match(text, at)) is not None:
            cells.append(cell.span())
            at = cell.end() + 1
            if text[cell.end() : at] != mark:
                break
        if len(cells) != len(names):
            return
        for index, kind_of in secret.items():
            start, end = cells[index]
            quoted = text[start : start + 1] == '"'
            if _counts(kind_of, text[start:end].strip('" ')):
                yield start + quoted, end - quoted
        place = text.find("\n", cells[-1][1]) + 1
