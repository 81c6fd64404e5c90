"""The first app that Celery's tutorial makes: one task that adds two numbers. The two lines of Redrive are marked."""

from __future__ import annotations

import os

from celery import Celery

from redrive.integrations.celery import RedriveCelery  # Redrive

app = Celery("tasks", broker=os.environ.get("BROKER", "redis://localhost:6379/0"))
RedriveCelery(app, store="sqlite:///letters.db")  # Redrive: what dies is a letter


@app.task
def add(x: int, y: int) -> int:
    total = x + y
    print(f"{x} + {y} = {total}", flush=True)
    return total


if __name__ == "__main__":  # somebody has put a text into the second sum: it dies in the worker
    add.delay(2, 2)
    add.delay("3", 4)
    print("sent two sums")
