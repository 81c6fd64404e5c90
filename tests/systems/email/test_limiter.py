"""The limiter as the receiver sees it: over several worker processes, with a server that is now quick, now slow."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from redrive.config.settings import Settings
from redrive.systems.email import EmailGateway
from redrive.systems.email.settings import EmailSettings
from redrive.testing.waiting import until
from tests.admin.process import redrive
from tests.systems.email.jobs import job
from tests.systems.email.mailserver import Mailbox, mail_server

LIMIT, SPAN, JOBS, WORKERS = 12, 1.0, 48, 3


class Uneven(Mailbox):
    """Answers after a while that is another each time, and notes when each e-mail came in and when it was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = Random(7)
        self.came: list[float] = []
        self.taken: list[float] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.came.append(monotonic())
        await asyncio.sleep(self.chance.choice((0, 0, 0.05, 0.6)))
        self.taken.append(monotonic())
        return await super().handle_DATA(server, session, envelope)


@pytest.fixture
async def uneven() -> AsyncIterator[tuple[Uneven, str]]:
    mailbox = Uneven()
    async with mail_server(mailbox) as port:
        yield mailbox, f"smtp://127.0.0.1:{port}?timeout=10s"


async def test_no_span_sees_more_than_the_limit_over_three_workers(
    tmp_path: Path, redis_url: str, uneven: tuple[Uneven, str]
) -> None:
    mailbox, smtp_url = uneven
    (tmp_path / "redrive.toml").write_text(
        f'[email]\nredis = "{redis_url}"\nsender = "{smtp_url}"\nrate = {LIMIT}\nrate_per = "{SPAN:g}s"\n'
    )
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(redrive(tmp_path, "email", "worker")) for _ in range(WORKERS)]
        async with EmailGateway(Settings(sections=(EmailSettings(redis=redis_url),))) as producer:
            await producer.add_all([job(f"o-{n}", f"company-{n % 5}") for n in range(JOBS)])
        await until(lambda: len(mailbox.delivered) == JOBS, timeout=60, what="all are sent")
        for worker in workers:
            assert await worker.end(signal.SIGTERM) == 0
    for times in (sorted(mailbox.came), sorted(mailbox.taken)):
        assert most_within(times) <= LIMIT


def most_within(times: list[float]) -> int:
    """How many there were at most within any span."""
    return max(sum(start <= time < start + SPAN for time in times) for start in times)
