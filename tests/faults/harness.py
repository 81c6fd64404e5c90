"""Send, kill, run a clean worker, count: every message has to be somewhere, and no work done too often."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import SystemClock
from redrive.flow.replay import Replays, ReplayState
from redrive.forensics.query import Query
from redrive.model import Letter, Message, State, letter_id
from redrive.stores.base import EntryStatus
from redrive.telemetry.events import Events
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.faults import Step
from redrive.transports.rabbitmq.declaring import Declaring
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import options_of
from tests.faults.worker_process import BATCH, CONCURRENCY, PARALLEL, SOURCE, Orders, store_of, transport_of

ROOT = Path(__file__).parents[2]
REPLAY = "replay-1"
_PATIENCE = 300  # seconds with a worker that hangs; a machine that has much else to do is no failure
HELD = max(2 * BATCH, 2 * CONCURRENCY)  # what one worker may hold at once
KINDS = {"ok": 200, "once": 30, "again": 20, "never": 15, "bad": 15, "back": 10, "dead": 10}
"""How many succeed at once, the second time, after an automatic retry, never, do not decode; and of those that were
buried before and are replayed: how many succeed and how many die again."""
FINE, HOPELESS = ("ok", "once", "again", "back"), ("never", "bad", "dead")


class Account(Struct, frozen=True):
    """Where everything is in the end."""

    step: str
    nth: int
    kills: int
    sent: frozenset[str]
    done: Counter[str]
    buried: frozenset[str]  # ids of open letters
    queued: int
    letters: tuple[Letter, ...]
    resolved: Counter[str]  # events: how often each letter was
    leases_lost: int
    rescued: int  # letters whose claim ended before they were known to be sent
    ledger: dict[EntryStatus, int]
    replay: ReplayState

    @property
    def lost(self) -> frozenset[str]:
        return self.sent - self.done.keys() - self.buried

    @property
    def repeated(self) -> int:
        return self.done.total() - len(self.done)

    @property
    def both(self) -> frozenset[str]:
        return self.buried & self.done.keys()

    def row(self) -> str:
        cells = (len(self.sent), len(self.done), len(self.buried), self.queued, len(self.lost), self.repeated)
        return f"{self.step:<16}{self.nth:>4}" + "".join(f"{cell:>10}" for cell in cells)


HEADING = f"{'killed at':<16}{'nth':>4}" + "".join(
    f"{name:>10}" for name in ("sent", "done", "buried", "queued", "lost", "repeated")
)


async def kill_at(directory: Path, step: Step, nth: int, transport: str = "", store: str = "") -> Account:
    """One worker dies at that step, another one ends the work."""
    orders = _orders(directory, transport, store)
    sent = await fill(orders, KINDS)
    code = await run_worker(replace(orders, step=step, nth=nth))
    assert code == -signal.SIGKILL, f"the worker was to die at {step} {nth}, but ended with {code}"
    await _end_work(orders)
    return await count(orders, sent, step=step, nth=nth, kills=1)


async def kill_at_random(
    directory: Path, pauses: Iterable[float], kinds: dict[str, int], transport: str = "", store: str = ""
) -> Account:
    """Workers die wherever they are, each so long after it began; the last one ends the work."""
    orders = replace(_orders(directory, transport, store), attempts=30, seconds=0.004)
    sent = await fill(orders, kinds)
    kills = 0
    for pause in pauses:
        process = await _start(orders)
        starts = kills + 1
        await _started(orders, starts)
        await asyncio.sleep(pause)
        if process.returncode is None:
            process.kill()
        await process.wait()
        kills += 1
    await _end_work(orders)
    return await count(orders, sent, step="anywhere", nth=kills, kills=kills)


async def fill(orders: Orders, kinds: dict[str, int]) -> frozenset[str]:
    """The messages in the queue, those to be replayed as letters, and their replay approved."""
    transport, store = transport_of(orders), store_of(orders)
    messages = [_message(f"{kind}-{n:04}") for n in range(max(kinds.values())) for kind in kinds if n < kinds[kind]]
    buried = [one for one in messages if one.id.startswith(("back", "dead"))]
    now = SystemClock().now()
    letters = [make_letter(one, make_failure(at=now), at=now, state=State.EXHAUSTED) for one in buried]
    await store.letters.record(letters)
    await transport.send([one for one in messages if one not in buried])
    replays = Replays(store, {"default": transport}, Events(), SystemClock())
    await replays.start(Query(states=(State.EXHAUSTED,)), actor="test", id=REPLAY)
    await transport.aclose()
    await store.aclose()
    return frozenset(one.id for one in messages)


async def run_worker(orders: Orders) -> int:
    """Its exit code."""
    process = await _start(orders)
    try:
        return await asyncio.wait_for(process.wait(), _PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()


async def _end_work(orders: Orders) -> None:
    """One clean worker does, as a rule. RabbitMQ tells nobody what a consumer holds: what it takes back late from a
    dead one may come when the clean one thinks that all is done."""
    for _ in range(3):
        assert await run_worker(orders) == 0
        if not await _queued(orders):
            break


async def _queued(orders: Orders) -> int:
    if orders.transport.startswith("amqp"):
        return await _queued_at_rabbitmq(orders.transport)
    transport = transport_of(orders)
    depths = await transport.depths()
    await transport.aclose()
    return sum(depth.total for depth in depths.values())


async def _queued_at_rabbitmq(url: str) -> int:
    """Its transport counts only queues that it has used."""
    options = options_of(url)
    link = Link(options)
    found = await Declaring(link, options).counts(SOURCE)
    await link.aclose()
    return sum(found)


async def count(orders: Orders, sent: frozenset[str], *, step: str, nth: int, kills: int) -> Account:
    store = store_of(orders)
    letters = (await store.letters.search(Query(), limit=10_000)).letters
    replay = await Replays(store, {}, Events(), SystemClock()).get(REPLAY)
    events = _lines(orders.events)
    account = Account(
        step=step,
        nth=nth,
        kills=kills,
        sent=sent,
        done=Counter(_lines(orders.done)),
        buried=frozenset(one.message.id for one in letters if one.state is not State.RESOLVED),
        queued=await _queued(orders),
        letters=letters,
        resolved=Counter(line.removeprefix("resolved ") for line in events if line.startswith("resolved ")),
        leases_lost=sum(line.startswith("lost ") for line in events),
        rescued=sum(int(line.removeprefix("rescued ")) for line in events if line.startswith("rescued ")),
        ledger=await store.ledger.tally(REPLAY),
        replay=replay.state,
    )
    await store.aclose()
    return account


def check(account: Account) -> None:
    """Everything that a crash may not change."""
    kind = {id: id.partition("-")[0] for id in account.sent}
    assert not account.lost
    assert account.queued == 0
    assert account.done.keys() | account.buried <= account.sent, "something came from nowhere"
    assert not account.both, "done and still asking for something"
    assert {id for id in account.buried if kind[id] in ("ok", "once", "back")} == set(), "it would have worked"
    assert {id for id in account.done if kind[id] in HOPELESS} == set()
    _check_letters(account)
    _check_repeats(account)
    outcomes = {status: number for status, number in account.ledger.items() if number}
    assert account.replay is ReplayState.SENT
    assert outcomes.keys() <= {EntryStatus.RESOLVED, EntryStatus.FAILED}, "the ledger is not complete"
    assert sum(outcomes.values()) == sum(kind in ("back", "dead") for kind in kind.values())


def _check_letters(account: Account) -> None:
    assert len({letter.id for letter in account.letters}) == len(account.letters)
    for letter in account.letters:
        assert letter.owner is None
        assert letter.state in (State.PENDING, State.EXHAUSTED, State.RESOLVED)
        assert letter.message.body == _message(letter.message.id).body
        if letter.state is State.RESOLVED:
            assert letter.message.id in account.done, "resolved without a success"
    # where an ack is lost with its worker the message comes again: it may die once more, and reopen its letter
    done = {letter_id(SOURCE, id): times for id, times in account.done.items()}
    assert account.resolved <= Counter(done), "a letter was resolved without a success"
    reopened = account.kills * HELD + account.leases_lost
    assert account.resolved.total() - len(account.resolved) <= reopened, "letters were resolved twice"


def _check_repeats(account: Account) -> None:
    """Only what was under way when a worker died, or whose lease or claim was lost, may have been done again."""
    lost = account.leases_lost + account.rescued
    under_way = HELD + PARALLEL + sum(id.startswith("back") for id in account.sent)
    assert account.repeated <= account.kills * under_way + lost
    # one message alone: a kill may leave all there is of it twice, where a copy was made and its original not acked
    assert max(account.done.values()) <= 2 ** (account.kills + 1) + lost


def _message(id: str) -> Message:
    body = b"\xff not JSON" if id.startswith("bad") else b'{"id": "%s"}' % id.encode()
    return make_message(id=id, source=SOURCE, body=body, headers=(("x-raw", b"\xff\x00"),))


def _orders(directory: Path, transport: str, store: str) -> Orders:
    return Orders(str(directory), transport=transport, store=store)


async def _start(orders: Orders) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.worker_process", msgspec.json.encode(orders).decode(), cwd=ROOT
    )


async def _started(orders: Orders, times: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while sum(line == "started" for line in _lines(orders.events)) < times:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
