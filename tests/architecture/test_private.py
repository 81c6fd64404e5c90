"""Tests ask public names: one that reaches into an object holds the code to how it is written, not to what it does."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHORTENED = "a wait that is a constant of the module, and too long for a test"
WHOLE_TABLE = "the page has to list all of a table, and only the table knows all of it"
REACH = "how far a reader may come beyond what is committed, which its constants say"
TAKEN = "a partition as it is taken away: nothing outside shows what was open then"
AHEAD = "what a reader has fetched ahead shows nowhere outside, and a channel is closed under its consumer"
SMALL = "bounds that only many letters would reach"
BETWEEN = "what happens between making a text and writing it shows nowhere outside"
ALLOWED: dict[str, tuple[int, str]] = {
    "tests/admin/test_health.py": (1, SHORTENED),
    "tests/alerts/reporting_process.py": (1, SHORTENED),
    "tests/alerts/test_notifiers.py": (1, SHORTENED),
    "tests/conformance/test_search_index.py": (11, f"{SMALL}; {BETWEEN}"),
    "tests/docs/test_reference.py": (8, WHOLE_TABLE),
    "tests/docs/test_surfaces.py": (5, f"{WHOLE_TABLE}; typing tells what a protocol is from Python 3.13 on"),
    "tests/faults/worker_process.py": (2, SHORTENED),
    "tests/systems/tickets/test_accounting.py": (2, REACH),
    "tests/trouble/order.py": (1, TAKEN),
    "tests/trouble/test_database.py": (1, SHORTENED),
    "tests/trouble/test_kafka_moves.py": (3, "what the driver says only once is withheld, as by itself"),
    "tests/trouble/test_pause_natively.py": (7, AHEAD),
    "tests/unit/stores/test_sqlite_scope.py": (2, "whether names are listed again shows in no answer"),
    "tests/unit/test_benchmarks.py": (4, "the contenders of a benchmark, which has no other user"),
    "tests/unit/transports/test_rabbitmq_pika.py": (6, "it tells when pika changes what pika_internals.py relies on"),
}
"""How many there may be, and why; by file, or by folder."""
FOREIGN = {("os", "_exit"), ("KafkaError", "_PARTITION_EOF")}  # private by name only, in libraries
BY_NAME = ("setattr", "getattr", "delattr")  # of an object, or of monkeypatch


def uses(tree: ast.AST) -> Iterator[str]:
    """Every private name of somebody else: `a._b`, `setattr(a, "_b", …)` and `from a import _b`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=name) if _is_private(name) and not _is_own(owner, name):
                yield ast.unparse(node)
            case ast.Call(func=function, args=[_, ast.Constant(value=str(name)), *_]) if _is_private(name):
                if ast.unparse(function).endswith(BY_NAME):
                    yield ast.unparse(node)
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module}.{alias.name}" for alias in names if _is_private(alias.name))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _is_own(owner: ast.expr, name: str) -> bool:
    text = ast.unparse(owner)
    return text in ("self", "cls", "super()") or (text, name) in FOREIGN


def _found() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        if names := list(uses(ast.parse(file.read_text()))):
            found[str(file.relative_to(ROOT))] = names
    return found


def _room(file: str) -> str:
    """The line of the list that it falls under; itself where there is none."""
    return max((room for room in ALLOWED if file.startswith(room)), key=len, default=file)


def test_tests_reach_into_nothing_but_what_is_listed() -> None:
    counted = Counter[str]()
    for file, names in _found().items():
        counted[_room(file)] += len(names)
    more = {room: count for room, count in counted.items() if count > ALLOWED.get(room, (0, ""))[0]}
    assert more == {}, "ask a public name, or look at what happens; see " + str(
        {file: names for file, names in _found().items() if _room(file) in more}
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("letter._id", ["letter._id"]),
        ("a._b._c", ["a._b._c", "a._b"]),
        ("monkeypatch.setattr(a, '_b', 1)", ["monkeypatch.setattr(a, '_b', 1)"]),
        ("from a import _b, c", ["a._b"]),
        ("self._id\nsuper()._end()\nos._exit(0)\na.__class__\na.b\nfrom a import __version__", []),
    ],
)
def test_what_counts(code: str, found: list[str]) -> None:
    assert list(uses(ast.parse(code))) == found
