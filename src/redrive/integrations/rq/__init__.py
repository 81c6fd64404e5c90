"""RQ's jobs as letters: what tells of them in its workers, and the way back into its queues.

fields.py      a job as its hash in Redis has it, and as a message
attached.py    RedriveRQ: reports deaths and successes of a worker
workers.py     workers for `rq worker --worker-class`
transport.py   rq+redis://, and FailedJobRegistry for `redrive collect`
reader.py      letters from FailedJobRegistry
checks.py      what `redrive doctor` looks at

A job's data is kept as the bytes that they are: what is pickled is never unpickled by us.
"""

from typing import TYPE_CHECKING

from redrive.systems.base import exports

if TYPE_CHECKING:
    from redrive.integrations.rq.attached import RedriveRQ
    from redrive.integrations.rq.workers import RedriveSimpleWorker, RedriveWorker

__all__ = ["RedriveRQ", "RedriveSimpleWorker", "RedriveWorker"]
__getattr__ = exports(
    __name__, {"attached": ("RedriveRQ",), "workers": ("RedriveSimpleWorker", "RedriveWorker")}, extra="rq"
)
