"""A worker of RQ as a script. The two lines of Redrive are marked.

python work.py    works, until Ctrl-C
"""

from __future__ import annotations

from rq import Worker
from words import redis  # type: ignore[import-not-found]

from redrive.integrations.rq import RedriveRQ  # Redrive

if __name__ == "__main__":
    worker = Worker(["words"], connection=redis)
    RedriveRQ(worker, store="sqlite:///letters.db")  # Redrive: what dies is a letter
    worker.work()
