"""One name for one thing: words that were given up stay out of the code, and a variable says what it holds.

docs/glossary.md is the list of those that are used. Names that others see (columns, keys, metrics, a contract's fields)
are texts, and not looked at here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "redrive"
RETIRED = {
    "terms": "limits",
    "outgoing": "what is sent: messages, streams",
    "picture": "snapshot",
    "pictures": "snapshots",
    "figures": "metrics",
    "talks": "calls",
    "telling": "dispatch",
    "teller": "dispatcher",
    "discretion": "mask",
    "campaign": "replay",
    "room": "capacity",
    "desk": "jobs of a thread",
    "one": "what it is: letter, group, tenant, entry",
}
ALLOWED = {
    ("stores/opensearch/query.py", "terms"),  # OpenSearch's own name of a query
}
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What the code itself names: variables, attributes, arguments, functions, classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.keyword(arg=str() as name):
                yield node.value.lineno, name


def _parts(name: str) -> set[str]:
    """`_MOST_TERMS` and `MostTerms` have the parts most and terms; `one` counts alone, not in `one_time`."""
    parts = {part.lower() for part in _PARTS.findall(name)}
    return parts if name == "one" else parts - {"one"}


@pytest.mark.parametrize("path", _files(), ids=_name)
def test_no_retired_word_names_anything(path: Path) -> None:
    found = [
        f"line {line}: {name}: write {RETIRED[word]}"
        for line, name in _names(ast.parse(path.read_text()))
        for word in sorted(_parts(name) & RETIRED.keys())
        if (_name(path), word) not in ALLOWED
    ]
    assert found == []
    assert not _parts(path.stem) & RETIRED.keys()


def test_what_is_allowed_is_needed() -> None:
    for name, word in ALLOWED:
        assert any(word in _parts(used) for _, used in _names(ast.parse((SRC / name).read_text()))), (name, word)


def test_the_test_sees_a_retired_word() -> None:
    seen = {
        word
        for _, name in _names(ast.parse("for one in x.takePicture(terms=1): _MOST_ROOM = one"))
        for word in _parts(name)
    }
    assert seen >= {"one", "picture", "terms", "room"}
