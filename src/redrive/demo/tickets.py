"""A poisoned ticket: the shape and the rules of the ticket worker (its topic, three attempts, order by plan), on SQLite
instead of Kafka.

A ticket that nobody can work on holds its plan: those behind it wait. Somebody mends it and sends it back, and they
follow.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec import Struct

from redrive.app import Redrive
from redrive.demo.past import Past
from redrive.demo.people import People
from redrive.demo.stage import TENANTS, Life, Stage, together
from redrive.flow.backoff import exponential
from redrive.forensics.query import Query
from redrive.model import Category, Message, State
from redrive.policy import Policy
from redrive.service import Service
from redrive.systems.tickets.settings import TicketSettings

TOPIC = TicketSettings().topic
TASKS = ("BUILD", "DEPLOY", "TEST", "VALIDATE")
TEAMS = {"eu-west": "lisbon", "us-east": "austin", "ap-south": "pune"}
VERSION, BEFORE = "5.1.0", "5.0.3"
EVERY, POISONED, MENDED = 2.0, 240.0, 60.0  # seconds: between tickets, between poisoned ones, and until one is mended


class Ticket(Struct, frozen=True, kw_only=True):
    """What has to be done, by how many, for how much."""

    ticket_id: str
    task_type: str
    plan_id: str
    region: str
    budget: float
    workers: int
    api_key: str = "sk-7f3a9c1e5b20"  # for you to see that it is not shown


class Agents:
    """Works on tickets."""

    def __init__(self) -> None:
        self.planner_is_down = False

    async def execute(self, ticket: Ticket) -> str:
        if self.planner_is_down:
            raise ConnectionError("the planner at 10.4.2.17:9443 refused the connection")
        team = TEAMS[ticket.region]
        return f"{team}: {share_of(ticket):.2f} for each"


def share_of(ticket: Ticket) -> float:
    """What each of its workers may spend."""
    return ticket.budget / ticket.workers


def policy() -> Policy:
    """So many attempts, whatever the error is, as the ticket worker has it; a dead ticket holds its plan."""
    times, wait = TicketSettings().max_retries, exponential("1s", cap="30s", jitter=0.25)
    same = Policy(attempts=times, backoff=wait)
    return Policy(times, wait, categories=dict.fromkeys(Category, same), on_death="hold-key")


class TicketsLife(Life):
    name = "tickets"
    watch = "a poisoned ticket holds its plan until somebody mends it (edited, sent back, and those behind it follow)"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.agents = Agents()
        self.app: Redrive = stage.app("agent-1", VERSION)
        self.app.handler(TOPIC, policy=policy())(self.agents.execute)
        self._number = 20_000

    def ticket(self, region: str = "", workers: int = 3, plan: str = "", tenant: str = "") -> Message:
        """A ticket of some plan."""
        self._number += 1
        chance = self.stage.random
        made = Ticket(
            ticket_id=f"T-{self._number}-{self.stage.clock.new_id()[-6:]}",
            task_type=chance.choice(TASKS),
            plan_id=plan or f"plan-{chance.randint(100, 999)}",
            region=region or chance.choice(tuple(TEAMS)),
            budget=float(chance.randint(20, 900)),
            workers=workers,
        )
        tenant = tenant or chance.choice(TENANTS)
        key = made.plan_id
        return self.app.message(TOPIC, made, id=made.ticket_id, key=key, correlation_id=key, tenant=tenant)

    async def past(self, past: Past) -> None:
        for at in past.times(46, 9, 30):
            unknown = self.ticket(region="eu-south", tenant="hooli")
            await past.handle(self.app, unknown, at, version=BEFORE, resolved=timedelta(hours=5))
        for at in past.times(8, 5, 6):
            await past.handle(self.app, self.ticket(region="eu-south", tenant="hooli"), at, version=BEFORE)
        for at in past.times(40, 1, 9):
            await past.handle(self.app, self.ticket(workers=0), at)
        self.agents.planner_is_down = True
        for at in past.times(9.4, 8.9, 52):
            after = timedelta(minutes=past.random.uniform(10, 90))
            await past.handle(self.app, self.ticket(), at, resolved=after if past.random.random() < 0.7 else None)
        self.agents.planner_is_down = False

    async def people(self, people: People) -> None:
        unknown = await people.group(TOPIC, "eu-south")
        await people.assign(unknown, "chris", "eu-south has no team yet. 5.1.0 sends its tickets to Lisbon.")
        await people.fix(unknown, VERSION, "TCK-481: eu-south is Lisbon's")
        away = await people.group(TOPIC, "the planner")
        await people.replay(Query(groups=(away,)), "the planner is back")
        [poisoned] = await people.letters(await people.group(TOPIC, "division by zero"))
        await people.edit(poisoned, mended(poisoned.message.body), "it said 0 workers; the plan says 4")

    async def live(self) -> None:
        await together(lambda: self.stage.work(self.app), self._send, self._poison, self._mend)

    async def _send(self) -> None:
        """Tickets that can be worked on; the first one shows that a fix was none."""
        await self.stage.send(self.app, self.ticket(region="eu-south", tenant="hooli"))
        while True:
            await self.stage.send(self.app, self.ticket())
            await self.stage.pause(EVERY)

    async def _poison(self) -> None:
        """Now and then one that cannot, and three behind it."""
        while True:
            plan = f"plan-{self.stage.random.randint(1000, 9999)}"
            await self.stage.send(self.app, self.ticket(workers=0, plan=plan))
            for _ in range(3):
                await self.stage.clock.sleep(2)
                await self.stage.send(self.app, self.ticket(plan=plan))
            await self.stage.clock.sleep(POISONED)

    async def _mend(self) -> None:
        """Somebody sees it, mends it, and sends it back."""
        people = People(Service(self.app))
        while True:
            await self.stage.clock.sleep(MENDED)
            now = self.stage.clock.now()
            wanted = Query(
                sources=(TOPIC,),
                states=(State.PENDING,),
                error_type="ZeroDivisionError",
                since=now - timedelta(minutes=9),
            )
            page = await self.app.store.letters.search(wanted, limit=1, oldest_first=True)
            for letter in page.letters:
                await people.edit(letter, mended(letter.message.body), "0 workers: it means all four")
                await people.retry(letter)

    async def aclose(self) -> None:
        await self.app.aclose()


def mended(body: bytes) -> bytes:
    """The ticket with as many workers as its plan says."""
    fields = msgspec.json.decode(body)
    return msgspec.json.encode({**fields, "workers": 4})
