"""`workflow+sqlite:///workflow.db`, `workflow+opensearch://…`: sends letters back to the apps on that store."""

from __future__ import annotations

from datetime import timedelta

from redrive.clock import Clock
from redrive.registry import open_store
from redrive.transports.letters import LettersTransport

_HINT = (
    "a workflow is not started by a message: run it with app.execute_workflow_parallel(…), or send the message to "
    "another source"
)


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> LettersTransport:
    """Of the store that the URL names behind `workflow+`: a replay sends, and an app's processor receives."""
    store = url if url.startswith("workflow+opensearch") else url.removeprefix("workflow+")
    return LettersTransport(open_store(store), clock=clock, lease=lease, hint=_HINT, owned=True)
