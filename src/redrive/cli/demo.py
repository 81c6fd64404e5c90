"""The live demonstration: a small shop whose world goes wrong in every way that Redrive knows, and recovers.

One minute shows a whole life: orders fail while the card gateway is down, are tried again, buried, and resolve by
themselves once it is back; e-mails bounce; reports are malformed, or meet a bug that a deploy mends later.
"""

from __future__ import annotations

import random
import shlex
import smtplib
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from redrive.app import Redrive
from redrive.cli.hints import program_from_anywhere
from redrive.config import settings
from redrive.flow.backoff import constant, exponential
from redrive.model import Message
from redrive.policy import Again, Policy
from redrive.service import Service

if TYPE_CHECKING:
    from redrive.admin.server import Server

_MINUTE = 60.0
_DOWN = (5.0, 30.0)  # seconds of each minute in which the card gateway is down
_MENDED = 45.0  # when the deploy comes that mends the reports
_TICK = 0.25
_CUSTOMERS = ("acme", "globex", "initech", "umbrella")


class Order(Struct):
    id: int
    customer: str
    amount: float
    card: str = "4111 1111 1111 1111"  # for you to see that it is not shown


class Mail(Struct):
    to: str
    subject: str


class Report(Struct):
    id: int
    customer: dict[str, str]
    rows: list[int]


class World:
    """What the handlers depend on, and what is wrong with it now."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._began = elapsed()
        self._random = random.Random()

    @property
    def age(self) -> float:
        return self._elapsed() - self._began

    @property
    def gateway_is_down(self) -> bool:
        return _DOWN[0] <= self.age % _MINUTE < _DOWN[1]

    @property
    def reports_are_mended(self) -> bool:
        return self.age >= _MENDED

    def chance(self, share: float) -> bool:
        return self._random.random() < share


def register(app: Redrive, world: World) -> None:
    """Register three handlers, each with its own way to fail."""

    @app.handler(
        "orders",
        policy=Policy(
            attempts=3,
            backoff=exponential("500ms", cap="2s", jitter=0.25),
            again=Again(20, constant("4s", jitter=0.25)),
        ),
    )
    async def charge(order: Order) -> None:
        if world.gateway_is_down:
            raise ConnectionError("the card gateway at 10.1.7.20:443 refused the connection")

    @app.handler("emails", policy=Policy(attempts=4, backoff=exponential("1s", jitter=0.25)))
    async def deliver(mail: Mail, message: Message) -> None:
        if mail.to.startswith("gone@"):
            raise smtplib.SMTPResponseException(550, f"5.1.1 {mail.to}: no such user here")
        if mail.to.startswith("full@") and world.chance(0.6):
            raise smtplib.SMTPResponseException(452, f"4.2.2 {mail.to}: mailbox full")

    @app.handler("reports", policy=Policy(attempts=2, backoff=constant("1s")))
    def summarise(report: Report) -> str:
        name = report.customer.get("region", "unknown") if world.reports_are_mended else report.customer["region"]
        return f"{name}: {sum(report.rows)}"


class Demo:
    """The shop, on one SQLite file in a directory of its own."""

    def __init__(self, place: Path | None = None, say: Callable[[str], Any] = lambda text: None) -> None:
        place = Path(tempfile.mkdtemp(prefix="redrive-demo-")) if place is None else place
        place.mkdir(parents=True, exist_ok=True)
        self.file = (place / "demo.db").resolve()
        self.app = Redrive(settings=_settings(f"sqlite:///{self.file}"))
        self.world = World(self.app.clock.elapsed)
        self.sent = 0
        self._say = say
        register(self.app, self.world)

    def introduce(self, server: Server) -> None:
        redrive = f"{program_from_anywhere()} --store {shlex.quote(f'sqlite:///{self.file}')}"
        self._say(_INTRODUCTION.format(url=server.url, file=self.file, redrive=redrive))

    async def produce(self) -> None:
        """Send orders, a few a second, for ever."""
        number = 0
        while True:
            number += 1
            messages = list(self._messages(number))
            await self.app.send_messages(messages)
            self.sent += len(messages)
            await self.app.clock.sleep(_TICK)

    def _messages(self, number: int) -> Iterator[Message]:
        world, customer = self.world, _CUSTOMERS[number % len(_CUSTOMERS)]
        shared: dict[str, Any] = {"tenant": customer, "correlation_id": f"visit-{number}", "key": customer}
        yield self.app.message("orders", Order(number, customer, 9.5 + number % 90), **shared)
        if number % 2 == 0:
            box = "gone" if world.chance(0.08) else "full" if world.chance(0.15) else "ann"
            yield self.app.message("emails", Mail(f"{box}@{customer}.test", "Your order"), **shared)
        if number % 3 == 0:
            details = {"name": customer} if world.chance(0.12) else {"name": customer, "region": "EU"}
            body: Any = b'{"id": 7, "rows": [1, 2' if world.chance(0.05) else Report(number, details, [1, 2, 3])
            yield self.app.message("reports", body, **shared)

    async def narrate(self) -> None:
        """Print what goes on, every few seconds."""
        service, was_down, was_mended = Service(self.app), False, False
        while True:
            if self.world.gateway_is_down is not was_down:
                was_down = not was_down
                self._say(f"{self._time()}  the card gateway is {'DOWN: orders fail' if was_down else 'back'}")
            if self.world.reports_are_mended is not was_mended:
                was_mended = True
                self._say(f"{self._time()}  the bug in `reports` is mended: replay the group of its KeyError now")
            if int(self.world.age) % 5 == 0:
                stats = await service.stats()
                letters = ", ".join(f"{count} {state}" for state, count in sorted(stats.states.items()))
                self._say(f"{self._time()}  sent {self.sent}, letters: {letters or 'none yet'}")
            await self.app.clock.sleep(1.0)

    def _time(self) -> str:
        minutes, seconds = divmod(int(self.world.age), 60)
        return f"{minutes:02}:{seconds:02}"


def _settings(url: str) -> settings.Settings:
    return settings.Settings(
        store=url,
        transports={"default": url},
        worker="demo",
        upkeep=settings.Upkeep(interval=timedelta(milliseconds=500)),
        retention=settings.Retention(max_letters=2000),
    )


_INTRODUCTION = """
A small shop runs here, and its world goes wrong. Everything is in {file}

  Open      {url}

  Watch     orders    the card gateway is down from 0:05 to 0:30 of each minute: attempts fail, letters pile up,
                      their circuit breaker opens; once the gateway is back they resolve by themselves
            emails    452 (mailbox full) is tried again, 550 (no such user) is buried at once
            reports   malformed bodies, and a bug (KeyError) until a deploy at 0:45: replay its group afterwards

  Try, in another terminal
            {redrive} groups
            {redrive} letters --source orders --state pending
            {redrive} replay --source reports --error-type KeyError
            {redrive} stats

Stop with Ctrl-C.
"""
