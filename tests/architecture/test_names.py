"""The core names no system: not in an import, not in a name, not in a text that somebody reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from redrive.systems.discover import systems

REDRIVE = Path(__file__).parents[2] / "src" / "redrive"
OWN_ROOMS = {"systems", "integrations", "demo"}
ALLOWED = {
    # what others call so
    ("files", "stores/redis/access.py"): "importlib.resources.files",
    ("files", "drivers/redis.py"): "importlib.resources.files",
    ("files", "drivers/sqlite/database.py"): "importlib.resources.files",
    ("files", "drivers/postgresql/migrations.py"): "importlib.resources.files",
    ("files", "drivers/postgresql/statements.py"): "importlib.resources.files",
    ("files", "console/__init__.py"): "importlib.resources.files",
    ("pipeline", "drivers/redis.py"): "a pipeline of redis-py",
    ("bullmq", "drivers/redis.py"): "the option `mirror` keeps ids under its names, for whoever reads those",
    ("workflow", "transports/rabbitmq/pika_internals.py"): "pika calls its way to a connection so",
    ("pipeline", "transports/postgresql/sending.py"): "a pipeline of psycopg",
    ("email", "alerts/notifiers/http.py"): "email.utils of the standard library",
    ("email", "access/claims.py"): "a claim of OpenID Connect",
    ("email", "config/settings.py"): "a scope of OpenID Connect",
}
PROSE = {"files"}  # an ordinary word: only where it is a command, a setting, a scheme or the whole text


def _core() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(REDRIVE.rglob("*.py")):
        name = path.relative_to(REDRIVE)
        if name.parts[0] not in OWN_ROOMS:
            yield name.as_posix(), ast.parse(path.read_text())


def _names(tree: ast.Module) -> Iterator[str]:
    """Every name that the code has, whole and in its parts: with_pipeline, PipelineReader."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "arg", "asname", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", value).lower())
                yield value
                yield from set(parts) - PROSE


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def _is_named(system: str, text: str) -> bool:
    if system not in PROSE:
        return re.search(rf"\b{system}\b", text.replace("_", " "), re.IGNORECASE) is not None
    spoken = (
        rf"redrive {system}\b|`{system}`|\b{system}\.[a-z_]+\b|REDRIVE_{system.upper()}_|\b{system}\+|systems\.{system}"
    )
    return text == system or re.search(spoken, text) is not None


def test_the_core_names_no_system() -> None:
    found = set()
    for name, tree in _core():
        words, texts = set(_names(tree)), list(_texts(tree))
        for system in systems():
            if system in words or any(_is_named(system, text) for text in texts):
                found.add((system, name))
    assert found - ALLOWED.keys() == set()
    assert ALLOWED.keys() - found == set(), "these are allowed, and not there any more"


def test_a_name_would_be_found() -> None:
    tree = ast.parse("from redrive import files\ndef with_pipeline(a): return 'see `redrive files import`'")
    assert {"files", "pipeline"} <= set(_names(tree))
    assert [text for text in _texts(tree) if _is_named("files", text)] == ["see `redrive files import`"]
    assert not _is_named("files", "SQLite files: where they lie")
    assert _is_named("files", "set files.url")
    assert _is_named("email", "REDRIVE_EMAIL_REDIS")
