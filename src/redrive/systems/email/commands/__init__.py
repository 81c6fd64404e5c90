"""`redrive email`: the e-mail gateway on Redis."""

from __future__ import annotations

import click

from redrive.cli.lazy import common
from redrive.systems.email.commands.dlq import dlq, export, reprocess, trim
from redrive.systems.email.commands.files import alert_rules, redis_conf
from redrive.systems.email.commands.queue import add, fairness, pause, resume, status
from redrive.systems.email.commands.worker import worker


@click.group()
@common
def email() -> None:
    """Send e-mail from a queue in Redis: fairly, at a bounded rate, with retries.

    What cannot be sent is in the DLQ. Settings are those of the section `email`: `redrive config` shows them.

    \b
    redrive email worker                       send, until Ctrl-C
    redrive email add job.json                 queue a job
    redrive email dlq stats --by code          why jobs died
    redrive email reprocess --code 421         send them back
    """


for _command in (worker, add, status, fairness, pause, resume, dlq, export, trim, reprocess, redis_conf, alert_rules):
    email.add_command(_command)
