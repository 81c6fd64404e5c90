"""dramatiq on RabbitMQ: eight threads, its usual middleware but for metrics, messages of its own form."""

from __future__ import annotations

import threading
import time
from typing import Any

from benchmarks.peers import needed

_THREADS = 8


def consume(url: str, total: int) -> float:
    """Messages a second, from the start of the worker to the last."""
    dramatiq = needed("dramatiq")
    broker = needed("dramatiq.brokers.rabbitmq").RabbitmqBroker(url=url)
    done, left, lock = threading.Event(), total, threading.Lock()

    def handle(body: str) -> None:
        nonlocal left
        with lock:
            left -= 1
            if not left:
                done.set()

    actor = dramatiq.actor(handle, broker=broker, queue_name=f"bench-{time.monotonic_ns()}")
    for _ in range(total):
        actor.send("x" * 300)
    worker = dramatiq.Worker(broker, worker_threads=_THREADS)
    began = time.perf_counter()
    worker.start()
    done.wait()
    took = time.perf_counter() - began
    _end(worker, broker)
    return total / took


def _end(worker: Any, broker: Any) -> None:
    worker.stop()
    broker.close()
