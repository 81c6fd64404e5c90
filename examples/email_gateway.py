"""The e-mail gateway in one process: two companies, a server that is busy, a mailbox that is gone and comes back.

Needs a Redis (REDRIVE_EMAIL_REDIS, or redis://127.0.0.1:6379/0) and `pip install '.[email]'`; sends nothing to
anybody. Run it: python email_gateway.py
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from redrive.access.actors import Actor, Role, Via
from redrive.config.load import load
from redrive.service import Service
from redrive.systems.email import EmailGateway, Mail, SendError
from redrive.systems.email.settings import EmailSettings
from redrive.telemetry.events import Event, LetterResolved, MessageBuried, MessageRetried
from redrive.worker import Worker

ME = Actor(id="", name="example", role=Role.ADMIN, via=Via.STORE)


class Town:
    """A sender of our own: it prints. One mailbox is busy at first, another does not exist until it is made."""

    def __init__(self) -> None:
        self.busy = {"ana@example.com"}
        self.missing = {"bob@example.com"}

    async def send(self, mail: Mail) -> None:
        (to,) = mail.recipients
        if to in self.busy:
            self.busy.discard(to)
            raise SendError("SMTP 421: busy", code="421")
        if to in self.missing:
            raise SendError("SMTP 550: Mailbox not found", code="550")
        print(f"  sent      {mail.job.outbox_id:8} {mail.job.company_id:6} to {to}")

    async def check(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def job(id: str, company: str, to: str) -> dict[str, str]:
    return {
        "outboxId": id,
        "companyId": company,
        "to": to,
        "from": "shop@example.org",
        "subject": "Your order",
        "text": "It is on its way.",
    }


async def main() -> None:
    settings = load()
    # a queue and a DLQ of its own; without them it would be email:send and email:send:dlq
    email = replace(
        settings.of(EmailSettings), queue="example:send", dlq="example:dlq", base_delay=timedelta(milliseconds=200)
    )
    town, done = Town(), asyncio.Event()
    async with EmailGateway(settings.having(email), sender=town) as gateway:
        gateway.app.events.subscribe(lambda event: tell(event, done))
        print("7 jobs: acme has 5 of them, umbrella 2")
        await gateway.add_all([job(f"acme-{number}", "acme", "team@example.com") for number in range(4)])
        await gateway.add_all([job("acme-4", "acme", "ana@example.com")])
        await gateway.add_all(
            [job("umb-0", "umbrella", "bob@example.com"), job("umb-1", "umbrella", "eve@example.com")]
        )
        worker = Worker(gateway.app, upkeep=False)
        running = asyncio.create_task(worker.run())
        await done.wait()
        print("bob's mailbox is made; the dead letter is reprocessed")
        town.missing.clear()
        done.clear()
        await Service(gateway.app).retry(["umb-0"], actor=ME)
        await done.wait()
        worker.stop()
        await running


def tell(event: Event, done: asyncio.Event) -> None:
    match event:
        case MessageRetried(message=id, failure=failure, after=after):
            print(f"  retry     {id:8} in {after.total_seconds():.1f} s: {failure.message}")
        case MessageBuried(message=id, failure=failure):
            print(f"  buried    {id:8} {failure.message}")
            done.set()
        case LetterResolved():
            print("  resolved  it has left the DLQ")
            done.set()


if __name__ == "__main__":
    asyncio.run(main())
