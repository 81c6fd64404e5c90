"""Failing mail: the e-mail gateway itself, on SQLite instead of Redis; a provider of our own takes the e-mail.

Mailboxes are full, addresses do not exist, and now and then the provider is busy for a while. What it refused then
is sent again by itself, after a cool-down.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

import msgspec

from redrive.demo.past import Past
from redrive.demo.people import People
from redrive.demo.stage import TENANTS, Life, Stage, together
from redrive.flow.guard import Guard
from redrive.forensics.query import Query
from redrive.model import Message
from redrive.systems.email import EmailGateway, Mail, SendError
from redrive.systems.email.settings import EmailSettings

QUEUE = "email:send"
SUBJECTS = ("Your order is on its way", "Your invoice", "Welcome", "Reset your password")
EVERY, ROUND, BUSY = 1.5, 180.0, (25.0, 50.0)  # seconds: between e-mails, of a round, and of it busy


class Provider:
    """Takes e-mail, or says why not, as a server does over SMTP."""

    def __init__(self) -> None:
        self.is_busy = False
        self._random = Random()

    async def send(self, mail: Mail) -> None:
        if self.is_busy:
            raise SendError("SMTP 421: 4.7.0 too many connections, try again later", code="421")
        for recipient in mail.recipients:
            self._accept(recipient)

    def _accept(self, recipient: str) -> None:
        if recipient.startswith("gone"):
            raise SendError(f"SMTP 550: 5.1.1 {recipient}: no such user here", code="550")
        if recipient.startswith("full") and self._random.random() < 0.6:
            raise SendError(f"SMTP 452: 4.2.2 {recipient}: mailbox full", code="452")

    async def check(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class EmailLife(Life):
    name = "email"
    watch = "full mailboxes are tried again, unknown ones buried; a busy provider is waited for"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.provider = Provider()
        own = EmailSettings(
            rate=None,  # limits over all workers, and fair turns, take Redis
            fair=False,
            attempts=4,
            cooldown=timedelta(seconds=30),
            cooldown_times=5,
            dlq_export=str(stage.place / "email-dlq.jsonl"),
        )
        settings = stage.settings_for("mail-1", "3.8.0", own)
        self.gateway = EmailGateway(settings, sender=self.provider, transport=stage.url, store=stage.url)

    def job(self, number: str, company: str, box: str) -> Message:
        """An e-mail to that mailbox."""
        order = {
            "outboxId": number,
            "companyId": company,
            "to": f"{box}@{company}.example",
            "from": "shop@mail.example",
        }
        words = {
            "subject": SUBJECTS[len(number + company) % len(SUBJECTS)],
            "text": "Track it at https://shop.example/orders",
        }
        body = msgspec.json.encode({**order, **words, "headers": {"X-Campaign": "spring"}})
        return self.gateway.app.message(QUEUE, body, id=number, tenant=company)

    async def past(self, past: Past) -> None:
        app, chance = self.gateway.app, past.random
        for number, at in enumerate(past.times(47, 0.2, 110)):
            company = chance.choice(("initech", "initech", "umbrella", "acme"))
            box = f"gone.{chance.choice(('bill', 'milton', 'peter'))}"
            await past.handle(app, self.job(f"outbox-{71000 + number}", company, box), at)
        self.provider.is_busy = True
        for number, at in enumerate([*past.times(31.5, 31, 25), *past.times(7.5, 6.6, 75)]):
            company = chance.choice(TENANTS)
            after = timedelta(minutes=chance.uniform(20, 70))
            await past.handle(app, self.job(f"outbox-{73000 + number}", company, "ann"), at, resolved=after)
        self.provider.is_busy = False

    async def people(self, people: People) -> None:
        group = await people.group(QUEUE, "no such user")
        await people.assign(group, "ann", "Initech renamed its mailboxes in March. I asked for the new list.")
        wanted, careful = Query(groups=(group,)), Guard(canary=3, share=0.1)
        await people.replay(wanted, "Initech says that the old addresses work again", guard=careful)

    async def live(self) -> None:
        await together(lambda: self.stage.work(self.gateway.app), self._send)

    async def _send(self) -> None:
        stage = self.stage
        while True:
            self.provider.is_busy = BUSY[0] <= stage.age % ROUND < BUSY[1]
            box = "gone.milton" if stage.chance(0.03) else "full.inbox" if stage.chance(0.06) else "ann"
            await stage.send(self.gateway.app, self.job(f"outbox-{stage.clock.new_id()}", stage.tenant(), box))
            await stage.pause(EVERY)

    async def aclose(self) -> None:
        await self.gateway.aclose()
