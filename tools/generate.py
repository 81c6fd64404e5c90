"""Writes the parts of the documentation that the code knows better: features, settings, commands.

`python -m tools.generate` writes them, `--check` fails if what is written is not what the code says.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import click

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


_TRANSPORTS = {
    "memory": "redrive.transports.memory:MemoryTransport",
    "sqlite": "redrive.transports.sqlite:SqliteTransport",
    "redis": "redrive.transports.redis:RedisTransport",
    "kafka": "redrive.transports.kafka.transport:KafkaTransport",
    "rabbitmq": "redrive.transports.rabbitmq.transport:RabbitTransport",
    "postgresql": "redrive.transports.postgresql:PostgresqlTransport",
    "sqs": "redrive.transports.sqs.transport:SqsTransport",
    "sqs fifo": "redrive.transports.sqs.transport:SqsFifoTransport",
}
_STORES = {
    "memory": "redrive.stores.memory:MemoryStore",
    "sqlite": "redrive.stores.sqlite:SqliteStore",
    "redis": "redrive.stores.redis:RedisStore",
    "opensearch": "redrive.stores.opensearch:OpenSearchStore",
    "postgresql": "redrive.stores.postgresql:PostgresStore",
    "mongodb": "redrive.stores.mongodb:MongoStore",
}


def transports() -> str:
    """One row for each promise, one column for each transport."""
    from redrive.transports.base import Features

    return _matrix("transport", Features, {name: _features(where) for name, where in _TRANSPORTS.items()})


def stores() -> str:
    """The same for stores."""
    from redrive.stores.base import StoreFeatures

    return _matrix("store", StoreFeatures, {name: _features(where) for name, where in _STORES.items()})


def settings() -> str:
    """Every setting, its default, its environment variable."""
    from redrive.config.settings import keys

    rows = [f"| `{key.path}` | {_default(key)} | `{key.environ}` | {key.about.text} |" for key in keys()]
    return "\n".join(["| key | default | environment | |", "| --- | --- | --- | --- |", *rows])


def commands() -> str:
    """Every command with its own help."""
    from redrive.cli import main

    return "\n\n".join(f"## `{name}`\n\n```text\n{text}\n```" for name, text in _helps(main, "redrive"))


def redaction_carriers() -> str:
    """What is masked in which carrier."""
    from tests.redaction.measure import carriers_table

    return carriers_table()


def redaction_harmless() -> str:
    """What is masked wrongly."""
    from tests.redaction.measure import harmless_table

    return harmless_table()


def redaction_kinds() -> str:
    """What is known by its looks."""
    from tests.redaction.measure import kinds_list

    return kinds_list()


GENERATED: dict[str, Callable[[], str]] = {
    "transports": transports,
    "stores": stores,
    "settings": settings,
    "commands": commands,
    "redaction_carriers": redaction_carriers,
    "redaction_harmless": redaction_harmless,
    "redaction_kinds": redaction_kinds,
}


def filled(text: str) -> str:
    """The page with every generated block as the code has it now."""
    return _BLOCK.sub(lambda found: f"{found[1]}{GENERATED[found[2]]()}\n{found[3]}", text)


def main(arguments: list[str]) -> int:
    stale = []
    for page in sorted(DOCS.rglob("*.md")):
        old = page.read_text()
        new = filled(old)
        if new != old:
            stale.append(str(page.relative_to(DOCS.parent)))
            if "--check" not in arguments:
                page.write_text(new)
    if stale and "--check" in arguments:
        sys.stderr.write(f"not current: {', '.join(stale)}. Run `python -m tools.generate`.\n")
        return 1
    return 0


def _features(where: str) -> Any:
    """Those of a class; the memory transport's depend on how it is made."""
    from redrive.clock import SystemClock

    module, _, name = where.partition(":")
    kind = getattr(import_module(module), name)
    return getattr(kind, "features", None) or kind(clock=SystemClock(), lease=timedelta(seconds=1)).features


def _matrix(noun: str, kind: Any, columns: dict[str, Any]) -> str:
    head = [f"| {noun} | {' | '.join(f'`{name}`' for name in columns)} |", f"| --- |{' --- |' * len(columns)}"]
    return "\n".join(head + [_row(field, columns) for field in kind.__struct_fields__])


def _row(field: str, columns: dict[str, Any]) -> str:
    return f"| {field.replace('_', ' ')} | {' | '.join(_word(getattr(one, field)) for one in columns.values())} |"


def _word(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _default(key: Any) -> str:
    from redrive.config.durations import spoken

    value = spoken(key.default) if isinstance(key.default, timedelta) else key.default
    return "" if value in (None, "", ()) else f"`{value}`"


def _helps(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    width = {"terminal_width": 100, "max_content_width": 100}
    context = click.Context(command, info_name=name.split()[-1], parent=parent, **width)
    yield name, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _helps(found, f"{name} {child}", context)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
