"""The section `email` of the settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Struct

from redrive.config.settings import TICK, About


class EmailSettings(Struct, frozen=True, kw_only=True):
    """The e-mail system (`redrive email`): its queue, its dead letters, its fairness, its sender."""

    redis: Annotated[str, About("The Redis of the e-mail system: jobs and dead letters", least=1)] = (
        "redis://127.0.0.1:6379/0"
    )
    queue: Annotated[str, About("The queue of jobs", least=1)] = "email:send"
    dlq: Annotated[str, About("The sorted set of its dead letters", least=1)] = "email:send:dlq"
    sender: Annotated[str, About("Who delivers: smtp://, smtps:// or ses://region", least=1)] = "smtp://localhost:25"
    attempts: Annotated[int, About("How often a job is tried", least=1)] = 5
    base_delay: Annotated[timedelta, About("The first delay between attempts; it doubles", least=TICK)] = timedelta(
        seconds=1
    )
    max_delay: Annotated[timedelta, About("The longest delay between attempts", least=TICK)] = timedelta(minutes=1)
    jitter: Annotated[int, About("How much chance there is in a delay, in percent", least=0, most=100)] = 25
    timeout: Annotated[timedelta, About("How long one attempt may take", least=TICK)] = timedelta(minutes=2)
    ttl: Annotated[timedelta, About("A job that is not sent by then is buried", least=TICK)] = timedelta(days=1)
    concurrency: Annotated[int, About("How many jobs a worker sends at once", least=1, most=10_000)] = 5
    rate: Annotated[int | None, About("At most so many jobs in each `rate_per`, over all workers", least=1)] = 100
    rate_per: Annotated[timedelta, About("The span that `rate` counts in", least=TICK)] = timedelta(minutes=1)
    adaptive: Annotated[bool, About("Go slower while the server throttles, and recover slowly")] = False
    fair: Annotated[bool, About("Companies take turns")] = True
    batch: Annotated[int, About("At most so many jobs in a row for a company while another waits", least=1)] = 3
    base_priority: Annotated[int, About("The priority of a company that was just served; lower is more urgent", 0)] = 5
    priority_increment: Annotated[
        int, About("How much more urgent it is with each round that passes it by", least=0)
    ] = 1
    max_priority: Annotated[int, About("The most urgent priority there is", least=0)] = 1
    mirror: Annotated[str, About("Keep the queue under BullMQ's names too: `bull:email:send:wait`; empty: no")] = "bull"
    tiers: Annotated[tuple[str, ...], About("Tiers of companies and the turns they get: `gold=3`")] = ()
    weights: Annotated[tuple[str, ...], About("Companies and their tier, or the turns they get: `acme=gold`")] = ()
    dlq_ttl: Annotated[timedelta, About("How long a dead letter is kept", least=TICK)] = timedelta(days=7)
    dlq_max_size: Annotated[int, About("Past this many, the oldest dead letters are exported and trimmed", 1)] = 10_000
    dlq_export: Annotated[str, About("The file they are written to before they are trimmed", least=1)] = (
        "email-dlq.jsonl"
    )
    cooldown: Annotated[
        timedelta | None, About("Reprocess by itself what ran out of attempts, after this time", least=TICK)
    ] = None
    cooldown_times: Annotated[int, About("How often it is reprocessed by itself", least=1)] = 1
