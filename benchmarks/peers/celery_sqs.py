"""Celery on SQS: a worker of its own in this process, with the pool that is fastest for tasks that do nothing."""

from __future__ import annotations

import threading
import time
from typing import Any

from benchmarks.peers import needed

_PATIENCE = 60  # seconds


def consume(endpoint: str, total: int) -> float:
    """Tasks a second, from the start of the worker to the last."""
    celery = needed("celery")
    needed("pycurl")
    app, done = _app(celery, endpoint), threading.Event()
    left, lock = total, threading.Lock()

    @app.task(name="bench.nothing")  # type: ignore[untyped-decorator]
    def nothing(body: str) -> None:
        nonlocal left
        with lock:
            left -= 1
            if not left:
                done.set()

    for _ in range(total):
        nothing.delay("x" * 300)
    worker = needed("celery.contrib.testing.worker")
    began = time.perf_counter()
    with worker.start_worker(app, pool="threads", concurrency=10, perform_ping_check=False, loglevel="ERROR"):
        if not done.wait(_PATIENCE):
            raise RuntimeError(f"Celery has {left} of {total} tasks left after {_PATIENCE} s")
        return total / (time.perf_counter() - began)


def _app(celery: Any, endpoint: str) -> Any:
    app = celery.Celery("bench", broker=f"sqs://x:x@{endpoint.removeprefix('http://')}")
    app.conf.update(
        task_default_queue=f"celery-{time.monotonic_ns()}",
        task_ignore_result=True,
        worker_prefetch_multiplier=10,
        broker_transport_options={"region": "elasticmq", "is_secure": False, "wait_time_seconds": 1},
    )
    return app
