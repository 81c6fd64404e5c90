"""A module that cannot be called for a while: its streams are held back, and none of them dies of it."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from redrive.clock import SystemClock
from redrive.errors import NotNow
from redrive.flow.breaker import Breaker, BreakerRule, Position
from redrive.systems.pipeline import PipeStream, ProcessRequest, ProcessResponse
from redrive.systems.pipeline.caller import RULE, Caller, NobodyKnown
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import GivenUp, NodeFault
from redrive.systems.pipeline.gate import Gate
from redrive.systems.pipeline.wire import Tls
from redrive.telemetry.events import Events
from redrive.testing.waiting import until
from tests.servers.consul import Consul
from tests.servers.ports import claim_port
from tests.systems.pipeline.world import ModuleProcess, Pipe, config, node

Starts = Callable[..., ModuleProcess]
STREAMS = 2_000
STALL = 6.0  # seconds
REQUEST = ProcessRequest(stream=PipeStream(stream_id="s")).SerializeToString()
SECONDS = timedelta(seconds=30)


async def test_a_module_that_stalls_floods_no_dlq(kafka: str, consul_server: Consul, start_module: Starts) -> None:
    """It stops for six seconds under load; Consul takes it for dead meanwhile. Another node goes on beside it."""
    name, other = f"stalls-{claim_port()}", f"goes-on-{claim_port()}"
    stalls, goes_on = start_module(name, consul=consul_server.url), start_module(other, consul=consul_server.url)
    await asyncio.gather(stalls.started(), goes_on.started())
    at = node(name, timeout=1.0, dlq_config=config(3, timedelta(seconds=1)))
    beside = node(other)
    async with Pipe(kafka, [at, beside], consul=consul_server.url, concurrency=64) as pipe:
        streams = set(await pipe.send_some(20, "upper", node=at.id))
        await until(lambda: streams <= pipe.ended, timeout=60, what="it works")
        stalls.signal(signal.SIGSTOP)
        streams |= set(await pipe.send_some(STREAMS, "upper", node=at.id))
        resumed = asyncio.get_running_loop().call_later(STALL, stalls.signal, signal.SIGCONT)
        await until(lambda: _is_held(pipe, name), timeout=60, what="its breaker is open")
        others = set(await pipe.send_some(200, "upper", node=beside.id))
        await until(lambda: others <= pipe.ended, timeout=60, what="the other node is not held up")
        assert not streams <= pipe.ended

        async def all_are_through() -> bool:
            assert await pipe.store.letters.tallies() == [], "none of them dies"
            return streams <= pipe.ended

        await until(all_are_through, timeout=120, what="all of them are through")
        assert resumed.when() < asyncio.get_running_loop().time()
        ended = await pipe.finished(len(streams))
    assert {step.attempt for stream in ended for step in stream.history} <= {1, 2}, "attempts were calls"


def _is_held(pipe: Pipe, module: str) -> bool:
    return pipe.engine.callers[module].breaker.position is not Position.CLOSED


async def test_a_stream_whose_patience_ends_says_since_when_and_that_it_was_never_called(kafka: str) -> None:
    at = node(dlq_config=config(2), patience=timedelta(seconds=1))
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]}) as pipe:
        early = set(await pipe.send_some(RULE.failures, "upper"))
        await until(lambda: _is_held(pipe, "flex"), timeout=60, what="its breaker is open")
        late = set(await pipe.send_some(5, "upper"))
        letters = {letter.message.correlation_id: letter for letter in await pipe.letters(RULE.failures + 5)}
        dead = {message.stream.stream_id: message for message in await pipe.dead(at, RULE.failures + 5)}
    assert letters.keys() == dead.keys() == early | late
    held = {id: letters[id] for id in late if len(letters[id].failures) == 1}
    assert len(held) >= 3, "a few may have been let through to see whether the module is back"
    for id, letter in held.items():
        assert re.match(
            r"never called: the breaker of module 'flex' is open since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, and the "
            r"stream was held back for 1s \(`patience` of its node\)\. Calls failed with: .*refused",
            letter.last.message,
        )
        assert (letter.last.code, dead[id].error_type) == ("CONNECTION_REFUSED", "CONNECTION_REFUSED")
        assert dead[id].retry_count == 0
    assert {len(letter.failures) for letter in letters.values()} <= {1, 2}


async def test_a_dead_module_is_not_called_for_long(start_module: Starts) -> None:
    """Its breaker opens; when the module is there again, one call decides for all that wait."""
    one = start_module()
    one.kill()
    caller = made_caller([one.address])
    for _ in range(RULE.failures):
        with pytest.raises(NodeFault, match="refused"):
            await caller(REQUEST, SECONDS)
    assert caller.breaker.capacity(1) == 0, "it is open"
    with pytest.raises(GivenUp, match="never called") as shed:
        await caller(REQUEST, SECONDS)
    assert (shed.value.kind, shed.value.retryable) == (ErrorType.CONNECTION_REFUSED, False)
    waiting = [asyncio.create_task(_called(caller, str(number), attempt=1 + number % 2)) for number in range(20)]
    one.start()
    await one.started()
    answers = await asyncio.gather(*waiting)
    assert {instance for _, instance in answers} == {one.address}
    assert caller.breaker.position is Position.CLOSED
    await caller.aclose()


async def test_without_patience_nothing_is_held_back_and_the_breaker_closes_all_the_same(start_module: Starts) -> None:
    one = start_module()
    one.kill()
    caller = made_caller([one.address])
    for _ in range(RULE.failures):
        with pytest.raises(NodeFault, match="refused"):
            await caller(REQUEST, SECONDS)
    one.start()
    await one.started()

    async def answers() -> bool:
        try:
            return bool(await caller(REQUEST, SECONDS))
        except NodeFault:
            return False

    await until(answers, timeout=60, what="one of them is let through")
    assert caller.breaker.position is Position.CLOSED
    await caller.aclose()


async def test_a_module_that_is_known_again_is_called_at_once(flex: ModuleProcess) -> None:
    """Held back meanwhile, and no attempt is spent on somebody who is not there."""
    known: list[str] = []
    caller = made_caller(known)
    for _ in range(RULE.failures):
        with pytest.raises(NobodyKnown) as unknown:
            await caller(REQUEST, SECONDS)
        assert unknown.value.kind is ErrorType.MODULE_UNAVAILABLE
    held = asyncio.create_task(caller(REQUEST, SECONDS, id="m-1", patience=timedelta(hours=1)))
    await asyncio.sleep(0)
    assert not held.done()
    known.append(flex.address)
    _, instance = await held
    assert instance == flex.address
    await caller.aclose()


async def test_the_one_that_is_tried_has_spent_the_fewest_attempts() -> None:
    breaker = Breaker(BreakerRule(failures=1, wait=timedelta()), SystemClock().elapsed)
    breaker.failed()
    known = asyncio.Event()

    async def somebody_is_there() -> bool:
        return known.is_set()

    gate = Gate(breaker, SystemClock(), somebody_is_there)
    hour = timedelta(hours=1)
    entering = {number: asyncio.create_task(gate.enter(f"m-{number}", number, hour)) for number in (3, 2, 1, 2)}
    await asyncio.sleep(0)
    known.set()
    gate.look()
    assert await entering.pop(1)
    breaker.succeeded()
    gate.opened()
    for waiter in entering.values():
        with pytest.raises(NotNow):
            await waiter
    await gate.aclose()


async def test_who_is_cancelled_while_it_is_let_through_leaves_its_place_to_another() -> None:
    breaker = Breaker(BreakerRule(failures=1, wait=timedelta()), SystemClock().elapsed)
    breaker.failed()

    async def somebody_is_there() -> bool:
        return True

    gate = Gate(breaker, SystemClock(), somebody_is_there)
    first = asyncio.create_task(gate.enter("m-1", 1, timedelta(hours=1)))
    await until(lambda: not breaker.capacity(1) or first.done(), what="it was chosen")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    breaker.forgotten()
    assert await gate.enter("m-2", 1, timedelta(hours=1))
    await gate.aclose()


async def _called(caller: Caller, id: str, attempt: int) -> tuple[ProcessResponse, str]:
    """As the engine does: who is given back comes again."""
    while True:
        try:
            return await caller(REQUEST, SECONDS, id=id, attempt=attempt, patience=timedelta(hours=1))
        except (NotNow, NodeFault):
            await asyncio.sleep(0)


def made_caller(known: Sequence[str]) -> Caller:
    async def addresses() -> Sequence[str]:
        return known

    return Caller("flex", addresses, why=str, tls=Tls(), clock=SystemClock(), events=Events())
