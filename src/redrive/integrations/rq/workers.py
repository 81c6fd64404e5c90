"""Workers for `rq worker --worker-class redrive.integrations.rq.RedriveWorker`.

REDRIVE_STORE is the URL of the store, REDRIVE_SPOOL the directory in which letters wait for it, REDRIVE_RQ_TRANSPORT
the name of the way back, if it is not `rq`.
"""

from __future__ import annotations

import os
from typing import Any

from rq.worker import SimpleWorker, Worker

from redrive.errors import ConfigError
from redrive.integrations.rq.attached import RedriveRQ


class RedriveWorker(Worker):
    """RQ's worker, with RedriveRQ attached."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.redrive = _attached(self)


class RedriveSimpleWorker(SimpleWorker):
    """RQ's worker that does not fork, with RedriveRQ attached."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.redrive = _attached(self)


def _attached(worker: Worker | SimpleWorker) -> RedriveRQ:
    store = os.environ.get("REDRIVE_STORE")
    if not store:
        raise ConfigError("letters need a store: set REDRIVE_STORE to its URL, such as postgresql://…")
    transport = os.environ.get("REDRIVE_RQ_TRANSPORT", "rq")
    return RedriveRQ(worker, store=store, transport=transport, spool=os.environ.get("REDRIVE_SPOOL"))
