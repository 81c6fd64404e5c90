"""Where the tasks of a queue are kept: in OpenSearch, in a store of any kind, or in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from redrive.clock import Clock
from redrive.errors import ConfigError
from redrive.registry import open_store
from redrive.stores.base import Store
from redrive.stores.memory import MemoryStore
from redrive.systems.workflow.shape import WORKFLOW
from redrive.systems.workflow.spool import SpooledStore
from redrive.telemetry.events import Events


def opened(
    client: Any, store: Store | str | Path | None, spool: str | Path | None, index: str, events: Events, clock: Clock
) -> Store:
    """The store that was asked for, with a spool behind it: in memory, if no other is named. Raises ConfigError."""
    if client is not None and store is not None:
        raise ConfigError("opensearch_client and store both say where tasks are kept: give one of them")
    first = _first(client, store, index, clock)
    if isinstance(first, MemoryStore | SpooledStore):
        if spool is not None:
            raise ConfigError("a spool catches what a store does not take: give opensearch_client, or `store`")
        return first
    behind = MemoryStore() if spool is None else _store(spool)
    owned = client is not None or isinstance(store, str | Path)
    return SpooledStore(first, behind, events, clock, owned=owned)


def _first(client: Any, store: Store | str | Path | None, index: str, clock: Clock) -> Store:
    if client is None:
        return MemoryStore() if store is None else _store(store)
    from redrive.stores.opensearch import OpenSearchStore

    return OpenSearchStore(client, index=index, shape=WORKFLOW, clock=clock)


def _store(where: Store | str | Path) -> Store:
    if isinstance(where, Path) or (isinstance(where, str) and "://" not in where):
        return open_store(f"sqlite:///{where}")
    return open_store(where) if isinstance(where, str) else where
