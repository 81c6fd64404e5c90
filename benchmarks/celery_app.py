"""The worker of `families/celery.py`: one process, which says what its tasks have cost and ends."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.worker import state

asked = json.loads(os.environ["BENCH_CELERY"])
app = Celery("bench", broker=asked["broker"])
app.conf.update(
    task_default_queue=asked["queue"],
    task_ignore_result=True,
    task_acks_late=asked["acks_late"],
    worker_prefetch_multiplier=100,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
if asked["watched"]:
    from redrive.integrations.celery import RedriveCelery

    RedriveCelery(app, store=asked["store"], spool=asked["spool"])

_seen = 0
_begun: tuple[float, float] = (0.0, 0.0)
_WARM = asked["tasks"] // 10  # tasks that are not counted


def _count() -> None:
    global _seen, _begun
    _seen += 1
    if _seen == _WARM:
        _begun = (time.perf_counter(), time.process_time())
    elif _seen == asked["tasks"]:
        counted = asked["tasks"] - _WARM
        wall, cpu = time.perf_counter() - _begun[0], time.process_time() - _begun[1]
        Path(asked["told"]).write_text(json.dumps({"wall": wall / counted, "cpu": cpu / counted}))
        state.should_stop = 0


@app.task
def succeeds(*_: Any) -> None:
    _count()


@app.task
def fails(*_: Any) -> None:
    _count()
    raise ValueError("for good")
