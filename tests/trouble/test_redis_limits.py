"""Rate, fairness, pauses and delays on a real Redis, over several consumers of one queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive import Redrive
from redrive.access.actors import Scope
from redrive.cli import main
from redrive.clock import SystemClock
from redrive.drivers.redis import Link
from redrive.errors import ConfigError
from redrive.flow.fairness import Rotation
from redrive.limits import Fair, Limits, Rate
from redrive.model import Category, Message, Retry
from redrive.service import Service
from redrive.testing.builders import make_failure, make_message
from redrive.testing.clock import START
from redrive.testing.waiting import until
from redrive.transports.base import Paused, Settlement
from redrive.transports.redis import RedisTransport
from redrive.transports.redis.packing import digest
from redrive.worker import Worker
from tests.actors import acting
from tests.servers.redis import Redis
from tests.trouble.redis_queue import finish, ids, link_to, private_url, transport_on
from tests.trouble.redis_time import let_time_pass

MINUTE = timedelta(minutes=1)


@pytest.fixture
def url(redis_server: Redis) -> str:
    return private_url(redis_server.url)


@pytest_asyncio.fixture
async def transport(url: str) -> AsyncIterator[RedisTransport]:
    async with transport_on(url) as transport:
        yield transport


def some(number: int, tenant: str | None = None, **changes: object) -> list[Message]:
    return [make_message(id=f"{tenant or ''}-{n:05}", tenant=tenant, **changes) for n in range(number)]


async def is_waiting(transport: RedisTransport) -> bool:
    """Whether nothing is to be had now."""
    receiving = asyncio.ensure_future(transport.receive("orders", 100))
    done, _ = await asyncio.wait([receiving], timeout=0.15)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    return not done


# -- rate ----------------------------------------------------------------------------------------------------------


async def test_a_rate_holds_over_all_workers(url: str, transport: RedisTransport) -> None:
    limits = Limits(Rate(10, MINUTE))
    async with transport_on(url) as other:
        for one in (transport, other):
            one.limit("orders", limits)
        await transport.send(some(30))
        got = [*await transport.receive("orders", 7), *await other.receive("orders", 100)]
        assert len(got) == 10
        assert await is_waiting(transport)
        assert await is_waiting(other)


async def test_the_window_of_a_rate_slides(url: str, transport: RedisTransport) -> None:
    transport.limit("orders", Limits(Rate(10, MINUTE)))
    await transport.send(some(30))
    assert len(await transport.receive("orders", 4)) == 4
    await let_time_pass(url, timedelta(seconds=40))
    assert len(await transport.receive("orders", 100)) == 6
    await let_time_pass(url, timedelta(seconds=21))
    assert len(await transport.receive("orders", 100)) == 4, "only the first four have left the minute"
    assert await is_waiting(transport)


async def test_who_waits_for_a_rate_goes_on_by_itself(transport: RedisTransport) -> None:
    transport.limit("orders", Limits(Rate(2, timedelta(milliseconds=300))))
    await transport.send(some(5))
    got = [len(await asyncio.wait_for(transport.receive("orders", 100), 30)) for _ in range(3)]
    assert got == [2, 2, 1]


async def test_an_adaptive_rate_is_halved_when_a_target_throttles_and_recovers(
    url: str, transport: RedisTransport
) -> None:
    transport.limit("orders", Limits(Rate(10, MINUTE, adaptive=True)))
    await transport.send(some(200))
    taken = await transport.receive("orders", 100)
    throttled = make_failure(category=Category.RESOURCE)
    await transport.settle([Settlement(one, Retry(timedelta(hours=9)), throttled) for one in taken])
    sizes = []
    for _ in range(4):
        await let_time_pass(url, timedelta(seconds=61))
        sizes.append(len(await transport.receive("orders", 100)))
    assert sizes == [6, 7, 8, 9], "half of it, and a tenth more for each minute without trouble"


# -- fairness ------------------------------------------------------------------------------------------------------


async def test_a_flood_does_not_delay_a_tenant_of_three(url: str, transport: RedisTransport) -> None:
    transport.limit("orders", Limits(fair=Fair()))
    await transport.send(some(1, "first"))
    await finish(transport, await transport.receive("orders", 1))
    await transport.send(some(5_000, "flood"))
    async with transport_on(url) as other:
        other.limit("orders", Limits(fair=Fair()))
        await finish(transport, await transport.receive("orders", 100))
        await transport.send(some(3, "small"))
        order = ids(await other.receive("orders", 2)) + ids(await transport.receive("orders", 6))
    assert [id.partition("-")[0] for id in order] == ["small"] * 3 + ["flood"] * 5


async def test_somebody_hears_of_the_turns_of_their_own_tenants_only(url: str, transport: RedisTransport) -> None:
    transport.limit("orders", Limits(fair=Fair()))
    await transport.send([*some(2, "acme"), *some(2, "vaultcorp")])
    app = Redrive(transport=url, store="memory://")
    app.declare("orders")
    async with app:
        whole, heard = Service(app), []
        for scope in (Scope(), Scope(tenants=("ac*",)), Scope(sources=("mail.*",))):
            shared = (await whole.seen_by(acting(scope=scope)).fairness()).sources
            heard.append(sorted(turn.tenant for source in shared for turn in source.tenants))
    assert heard == [["acme", "vaultcorp"], ["acme"], []]


async def test_metrics_of_tenants(transport: RedisTransport) -> None:
    transport.limit("orders", Limits(fair=Fair()))
    await transport.send(some(1, "first"))
    await finish(transport, await transport.receive("orders", 1))
    await transport.send([message for tenant in "abcdefg" for message in some(9, tenant)])
    await finish(transport, await transport.receive("orders", 17))
    found = {one.name: one for one in await transport.tenants("orders")}
    assert sum(one.total_processed for one in found.values()) == 18
    never = [one for one in found.values() if one.last_processed_at is None]
    assert len(never) == 1
    assert (never[0].rounds_without_processing, never[0].current_priority) == (5, 1)
    [current] = [one for one in found.values() if one.consecutive_batch_count]
    assert (current.total_processed, current.consecutive_batch_count) == (2, 2)
    assert found["first"].waiting == 0


async def test_a_tenant_with_a_name_of_10_kb(transport: RedisTransport) -> None:
    transport.limit("orders", Limits(fair=Fair()))
    await transport.send(some(1, "known"))
    await finish(transport, await transport.receive("orders", 1))
    name = "ü" * 5_000 + "}:{"
    await transport.send([make_message(tenant=name), make_message(tenant="")])
    got = await transport.receive("orders", 10)
    assert {one.message.tenant for one in got} == {name, ""}
    assert name in {one.name for one in await transport.tenants("orders")}


async def test_what_was_sent_before_a_source_became_fair_is_not_stranded(url: str, transport: RedisTransport) -> None:
    await transport.send(some(5, "early"))
    transport.limit("orders", Limits(fair=Fair()))
    await finish(transport, await transport.receive("orders", 1))
    await transport.send(some(5, "late"))
    got = await transport.receive("orders", 100)
    assert Counter(one.message.tenant for one in got) == {"early": 4, "late": 5}
    await transport.settle([Settlement(one, Retry(timedelta(hours=1)), make_failure()) for one in got])
    async with transport_on(url) as unfair:
        await unfair.send([make_message(id="after")])
        await let_time_pass(url, timedelta(hours=1))
        assert len(await unfair.receive("orders", 100)) == 10, "nor is what was sent while it was fair"


async def test_urgent_ones_come_first_among_those_of_their_tenant(transport: RedisTransport) -> None:
    transport.limit("orders", Limits(fair=Fair()))
    await transport.send([make_message(id="warm-up", tenant="a")])
    await finish(transport, await transport.receive("orders", 1))
    await transport.send([make_message(id=f"{priority}", tenant="a", priority=priority) for priority in (5, 0, -1, 0)])
    assert ids(await transport.receive("orders", 10)) == ["-1", "0", "5"]


async def test_a_tenant_of_more_weight_gets_more_turns(transport: RedisTransport) -> None:
    transport.limit("orders", Limits(fair=Fair(weights={"gold": 3})))
    await transport.send(some(1, "x"))
    await finish(transport, await transport.receive("orders", 1))
    for tenant in ("gold", "a", "b"):
        await transport.send(some(300, tenant))
    got = await transport.receive("orders", 250)
    shares = Counter(one.message.tenant for one in got)
    assert shares["gold"] > 2.5 * max(shares["a"], shares["b"])


STEPS = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 8)), min_size=1, max_size=3) | st.integers(1, 9),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, in_a_row=st.integers(1, 4), weights=st.dictionaries(st.sampled_from("ab"), st.floats(0.2, 5)))
def test_the_server_serves_exactly_as_the_rule_says(
    redis_server: Redis,
    steps: list[list[tuple[str, int]] | int],
    in_a_row: int,
    weights: dict[str, float],
) -> None:
    fair = Fair(in_a_row=in_a_row, weights=weights)
    served, expected = asyncio.run(_served(private_url(redis_server.url), steps, fair)), _expected(steps, fair)
    assert served == expected


async def _served(url: str, steps: list[list[tuple[str, int]] | int], fair: Fair) -> list[str]:
    """The tenants in the order in which the server gave out their messages."""
    served: list[str] = []
    async with transport_on(url) as transport:
        transport.limit("orders", Limits(fair=fair))
        await _govern_now(transport)
        waiting = 0
        for step in steps:
            if not isinstance(step, int):
                await transport.send([make_message(tenant=tenant) for tenant, number in step for _ in range(number)])
                waiting += sum(number for _, number in step)
            elif waiting:
                got = await transport.receive("orders", step)
                assert len(got) == min(step, waiting)
                waiting -= len(got)
                served += [one.message.tenant or "" for one in got]
                await finish(transport, got)
    return served


def _expected(steps: list[list[tuple[str, int]] | int], fair: Fair) -> list[str]:
    """The same by the pure rule. Ties are broken by the digest, so that is what it is told."""
    names = {digest(tenant): tenant for tenant in "abcd"}
    rotation = Rotation(fair.in_a_row, {digest(tenant): weight for tenant, weight in fair.weights.items()})
    left: Counter[str] = Counter()
    served: list[str] = []

    def pop(tenant: str, number: int) -> tuple[int, bool]:
        taken = min(number, left[tenant])
        left[tenant] -= taken
        served.extend([names[tenant]] * taken)
        return taken, left[tenant] > 0

    for step in steps:
        if isinstance(step, int):
            rotation.serve(step, pop)
        else:
            for tenant, number in step:
                left[digest(tenant)] += number
                rotation.join(digest(tenant))
    return served


async def _govern_now(transport: RedisTransport) -> None:
    """A worker that found nothing: from now on, senders know the limits too."""
    await is_waiting(transport)


# -- pauses and delays ---------------------------------------------------------------------------------------------


async def test_a_paused_source_gives_nothing_until_it_is_resumed(url: str, transport: RedisTransport) -> None:
    await transport.pause(Paused("orders", by="ann", at=START))
    await transport.send(some(3))
    assert await is_waiting(transport)
    receiving = asyncio.ensure_future(transport.receive("orders", 10))
    async with transport_on(url) as other:
        await other.resume("orders")
        assert len(await asyncio.wait_for(receiving, 30)) == 3


async def test_what_runs_may_end_while_its_source_is_paused(transport: RedisTransport) -> None:
    await transport.send(some(2))
    got = await transport.receive("orders", 1)
    await transport.pause(Paused("orders", by="ann", at=START))
    assert await transport.extend(got) == []
    assert await transport.settle([Settlement(got[0], Retry(timedelta()), make_failure())]) == []
    assert (await transport.depths())["orders"].ready == 2
    assert await is_waiting(transport)


async def test_a_delayed_message_wakes_who_waits_when_it_is_due(transport: RedisTransport) -> None:
    receiving = asyncio.ensure_future(transport.receive("orders", 10))
    now = SystemClock().now()
    await transport.send([make_message(id="later", not_before=now + timedelta(milliseconds=200))])
    got = await asyncio.wait_for(receiving, 30)
    assert ids(got) == ["later"]
    assert SystemClock().now() >= now + timedelta(milliseconds=200)


async def test_clocks_five_seconds_apart_are_harmless(url: str) -> None:
    """Leases and delays are the server's: a worker whose clock is ahead ends nobody's lease."""

    class Ahead(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(seconds=5)

    lease = timedelta(seconds=4)
    async with transport_on(url, lease=lease) as here, transport_on(url, lease=lease, clock=Ahead()) as ahead:
        await ahead.send([make_message(id="now"), make_message(id="later", not_before=Ahead().now() + MINUTE)])
        [held] = await asyncio.wait_for(here.receive("orders", 10), 30)
        assert held.message.id == "now"
        assert await is_waiting(ahead)
        assert (await here.depths())["orders"].delayed == 1
        assert await here.settle([Settlement(held, Retry(MINUTE), make_failure())]) == []
        assert await is_waiting(ahead)


# -- an idle worker ------------------------------------------------------------------------------------------------


async def test_an_idle_worker_does_not_poll(url: str, transport: RedisTransport) -> None:
    async with link_to(url) as link:
        receiving = asyncio.ensure_future(transport.receive("orders", 10))
        await asyncio.sleep(0.1)
        before = await _commands(link)
        await asyncio.sleep(0.5)
        asked = await _commands(link) - before
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
    assert asked < 20, "the shared server may be asked by others, but not by us all the time"


async def _commands(link: Link) -> int:
    return sum(int(info["total_commands_processed"]) for info in (await link.infos()).values())


async def test_every_idle_worker_is_woken_while_there_is_work(url: str) -> None:
    async with transport_on(url) as one, transport_on(url) as two, transport_on(url) as three:
        waiting = [asyncio.ensure_future(each.receive("orders", 1)) for each in (one, two, three)]
        await asyncio.sleep(0.1)
        await one.send(some(3))
        got = await asyncio.wait_for(asyncio.gather(*waiting), 4)  # less than the longest wait
        assert sorted(id for deliveries in got for id in ids(deliveries)) == sorted(m.id for m in some(3))


async def test_a_worker_that_stops_waiting_does_not_take_the_sign_for_the_others(url: str) -> None:
    async with transport_on(url) as quitter, transport_on(url) as other:
        for n in range(10):
            leaving = asyncio.ensure_future(quitter.receive("orders", 1))
            staying = asyncio.ensure_future(other.receive("orders", 1))
            await asyncio.sleep(0.02)
            leaving.cancel()
            await other.send([make_message(id=f"{n}")])
            gone = await asyncio.gather(leaving, return_exceptions=True)
            if isinstance(gone[0], BaseException):
                [got] = await asyncio.wait_for(staying, 4)
                await finish(other, [got])
            else:
                await finish(quitter, gone[0])
                staying.cancel()
                await asyncio.gather(staying, return_exceptions=True)


# -- asking for it -------------------------------------------------------------------------------------------------


async def test_a_handler_asks_for_a_rate_and_fairness(url: str) -> None:
    app = Redrive(transport=url, store="memory://")
    seen: list[str] = []

    @app.handler("orders", rate=Rate(3, "1m"), fair=True, concurrency=2)
    async def handle(order: dict[str, int], message: Message) -> None:
        seen.append(message.id)

    async with app:
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        for n in range(5):
            await app.send("orders", {"n": n}, tenant="a", id=f"{n}")
        await until(lambda: len(seen) == 3, what="three were handled")
        depths = await app.transport().depths()
        worker.stop()
        await running
    assert (len(seen), depths["orders"].ready) == (3, 2)


def test_a_transport_that_cannot_keep_terms_says_so_at_start() -> None:
    app = Redrive(transport="memory://", store="memory://")
    app.handler("orders", rate=Rate(3, "1m"))(lambda order: None)
    with pytest.raises(ConfigError, match=r"rate=Rate\(3, 0:01:00\).*use one that can, such as redis://"):
        app.context(app.handlers["orders"])


def test_a_source_is_paused_and_resumed_by_command(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_TRANSPORTS_DEFAULT", url)
    monkeypatch.setenv("REDRIVE_STORE", f"sqlite:///{tmp_path / 'letters.db'}")
    assert "orders is paused" in _run("pause", "orders", "--force")
    assert "'orders' is paused by" in _run("doctor")
    assert "orders goes on" in _run("resume", "orders")
    assert "is paused" not in _run("doctor")
    _run("send", "orders", "{}", "--delay", "1h")
    assert '"delayed": 1' in _run("stats", "--json")


def _run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output
    return result.output
