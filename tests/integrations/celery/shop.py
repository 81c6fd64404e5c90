"""The app of the workers that the tests start: told by its environment where everything is."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore, Reject

from redrive.integrations.celery import RedriveCelery

settings = json.loads(os.environ["SHOP"])
app = Celery("shop", broker=settings["broker"], backend=settings.get("backend"))
app.conf.update(
    task_default_queue=settings["queue"],
    accept_content=["json", "pickle"],
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    broker_transport_options=settings.get("options", {}),
    **settings.get("conf", {}),
)
RedriveCelery(app, store=settings["store"], spool=settings["spool"], fsync=False)


def note(place: str, line: str) -> None:
    with Path(place).open("a") as file:
        file.write(f"{line}\n")


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def charge(mended: str, *more: Any, **secrets: Any) -> str:
    """Fails until that file is there."""
    if not Path(mended).exists():
        raise ValueError("card declined")
    return "charged"


@app.task(bind=True, max_retries=2, default_retry_delay=0)
def flaky(self: Any, mended: str) -> str:
    if Path(mended).exists():
        return "done"
    try:
        raise ConnectionError(f"attempt {self.request.retries}")
    except ConnectionError as error:
        raise self.retry(exc=error, headers={"mine": "kept"}) from error


@app.task(bind=True, max_retries=1, default_retry_delay=0)
def asks_again(self: Any) -> None:
    raise self.retry(exc=RuntimeError("raised nowhere"))


@app.task(autoretry_for=(OSError,), retry_backoff=False, default_retry_delay=0, max_retries=1)
def automatic() -> None:
    raise OSError("again")


@app.task(acks_late=True)
def rejects(requeue_file: str) -> None:
    raise Reject("no use", requeue=False)


@app.task
def ignores() -> None:
    raise Ignore


@app.task(soft_time_limit=1, time_limit=60)
def slow() -> None:
    time.sleep(60)


@app.task(time_limit=1)
def hangs() -> None:
    time.sleep(60)


@app.task(acks_late=True)
def dies(mended: str) -> str:
    if not Path(mended).exists():
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is out
    return "lived"


@app.task
def follow(result: Any, place: str) -> None:
    note(place, f"follow {result}")


@app.task(bind=True)
def gather(self: Any, results: list[Any], place: str) -> None:
    note(place, f"gather {results}")


class Unspeakable(Exception):
    def __init__(self, text: str, lock: Any) -> None:  # can be neither pickled nor shown
        super().__init__(text)
        self.lock = lock

    def __str__(self) -> str:
        raise RuntimeError("no words")


@app.task
def unspeakable() -> None:
    raise Unspeakable("x", threading.Lock())


class Mine(Task):  # type: ignore[misc]
    """A base class that knows nothing of the app."""


@app.task(base=Mine)
def of_a_base() -> None:
    raise KeyError("mine")


@app.task(acks_late=True)
def work(number: int, place: str, outcome: str) -> None:
    """One of an accounting: done, dead, or the death of its process."""
    time.sleep(0.005)
    if outcome == "fail":
        raise ValueError("for good")
    note(place, str(number))
