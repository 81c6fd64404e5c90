"""A worker of RQ as a script of its user: `python -m tests.integrations.rq.worker`. The last line but one is ours."""

import os

from redis import Redis
from rq import Queue, Worker

from redrive.integrations.rq import RedriveRQ

redis = Redis.from_url(os.environ["BROKER"])
worker = Worker([Queue(os.environ["QUEUE"], connection=redis)], connection=redis)
RedriveRQ(worker, store=os.environ["STORE"], spool=os.environ["SPOOL"], fsync=False)
worker.work(with_scheduler=False)
