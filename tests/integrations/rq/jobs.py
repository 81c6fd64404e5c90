"""Jobs of an app that uses RQ."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from rq import Retry

PLACE = Path(os.environ.get("PLACE", "."))


def mended() -> bool:
    return (PLACE / "mended").exists()


def note(name: str, text: str) -> None:
    with (PLACE / name).open("a") as file:
        file.write(f"{text}\n")


def charge(order: str) -> str:
    if not mended():
        raise ConnectionError(f"the bank does not answer for {order}")
    note("done", order)
    return f"{order} paid"


def on_success(job: Any, connection: Any, result: Any) -> None:
    note("told", f"{job.args[0]} succeeded: {result}")


def on_failure(job: Any, connection: Any, kind: type[BaseException], error: BaseException, trace: Any) -> None:
    note("told", f"{job.args[0]} failed: {kind.__name__}")


def confirm(order: str) -> None:
    note("confirmed", order)


def kill_myself() -> None:
    """As the kernel does it when memory is full."""
    if not mended():
        os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    if not mended():
        time.sleep(600)


def hand_back() -> Retry | None:
    return None if mended() else Retry(max=1)


def work(number: int) -> None:
    """Some fail: for the account."""
    if number % 5 == 0 and not mended():
        raise RuntimeError("a fifth fails")
    note("worked", str(number))


class NoRepr:
    """An argument that cannot be shown, once it was sent."""

    def __init__(self) -> None:
        self.size = 5_000_000
        self.data = b"x" * self.size

    def __repr__(self) -> str:
        if "PLACE" in os.environ:
            raise RuntimeError("no repr")
        return "NoRepr()"


def show(anything: object) -> None:
    if not mended():
        raise RuntimeError("nothing can be shown")
