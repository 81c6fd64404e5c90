"""A worker process: every handler of an app, upkeep beside it, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from redrive.alerts import alerting
from redrive.clock import Pause
from redrive.errors import ConfigError, Unavailable
from redrive.flow.batches import BatchConsumer
from redrive.flow.context import Context
from redrive.flow.receive import Consumer
from redrive.flow.signing import EVERY, go_without, load_keys
from redrive.flow.tasks import cancel, until
from redrive.processes.overseer import overseer
from redrive.proof import ring
from redrive.telemetry.events import WorkerStarted, WorkerStopped
from redrive.upkeep.heartbeat import Heartbeat
from redrive.upkeep.loop import Upkeep
from redrive.upkeep.pausing import PauseWatch
from redrive.upkeep.series import RetryCounter
from redrive.upkeep.storming import StormWatch

if TYPE_CHECKING:
    from redrive.app import Redrive

T = TypeVar("T")
log = logging.getLogger("redrive")
Helper: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Runs beside a worker or a server, and is cancelled when it ends."""


class Worker:
    """Receives for every handler of an app until it is told to stop."""

    def __init__(
        self, app: Redrive, *, upkeep: bool = True, grace: timedelta | None = None, beside: Sequence[Helper] = ()
    ) -> None:
        if not app.handlers:
            raise ConfigError("this app has no handlers: register one with @app.handler('orders')")
        self._app = app
        self._ending = asyncio.Event()
        self.grace = app.settings.grace if grace is None else grace
        self._consumers = [consumer_of(app.context(handler)) for handler in app.handlers.values()]
        by_source = dict(zip(app.handlers, self._consumers, strict=True))
        self._pauses = PauseWatch.of(app, by_source)
        self._heartbeat = Heartbeat(app, by_source)
        self._storms = StormWatch.of(app, by_source, self._pauses, self._heartbeat)
        self._retries = RetryCounter(app.store, app.events, app.clock)
        own = [self._pauses.run, self._storms.run, self._heartbeat.run, self._retries.run]
        self._helpers = [*own, *([Upkeep.of(app).run] if upkeep else []), *beside]

    async def run(self) -> None:
        """Run until `stop`. What runs may finish within the grace; what was not begun is given back."""
        app = self._app
        app.events.emit(WorkerStarted(worker=app.settings.worker_name, sources=tuple(app.handlers)))
        try:
            await self._load_keys()
            await self._pauses.begin()
            await self._storms.begin()
            async with alerting(app), asyncio.TaskGroup() as group:
                helpers = [group.create_task(helper()) for helper in (*self._helpers, self._renew_keys)]
                consumers = [group.create_task(consumer.run(self.grace)) for consumer in self._consumers]
                await asyncio.wait(consumers)
                for helper in helpers:
                    helper.cancel()
        except ExceptionGroup as errors:
            raise _refusal(errors) or errors from None
        finally:
            await self._heartbeat.end()
            await self._retries.end()
            released = sum(consumer.released for consumer in self._consumers)
            app.events.emit(WorkerStopped(worker=app.settings.worker_name, released=released))

    async def _load_keys(self) -> None:
        """Read the keys that messages which come back are proven by. With a store that is away all others are begun;
        who stops the worker does not wait for it."""
        reading = asyncio.create_task(load_keys(self._app.store, self._app.clock.now()))
        try:
            await until(self._ending, [reading])
        except Unavailable:
            go_without()
        finally:
            await cancel([reading])

    async def _renew_keys(self) -> None:
        """Read the keys now and then, until it is cancelled: somebody may rotate them, or the store was away."""
        pause = Pause(0.1, 10.0)
        while True:
            await asyncio.sleep(pause.next() if ring().is_unread else EVERY.total_seconds())
            with suppress(Unavailable):
                await load_keys(self._app.store, self._app.clock.now())

    def stop(self) -> None:
        """Take nothing new; end when what runs is done."""
        self._ending.set()
        self._heartbeat.drain()
        for consumer in self._consumers:
            consumer.stop()


def consumer_of(context: Context) -> Consumer:
    """What receives for its handler: message by message, or in batches."""
    return Consumer(context) if context.handler.batch is None else BatchConsumer(context)


def _refusal(errors: ExceptionGroup[Exception]) -> ConfigError | None:
    """The ConfigError among the errors: how a backend is set up is no bug, and is said in one line."""
    return next((error for error in errors.exceptions if isinstance(error, ConfigError)), None)


def run(app: Redrive, *, upkeep: bool = True, grace: timedelta | None = None, beside: Sequence[Helper] = ()) -> None:
    """Run a worker in this process until Ctrl-C or SIGTERM; the second one ends it at once."""
    run_on_fast_loop(_run(app, upkeep, grace, beside))


async def _run(app: Redrive, upkeep: bool, grace: timedelta | None, beside: Sequence[Helper]) -> None:
    async with app:
        await work(app, upkeep=upkeep, grace=grace, beside=beside)


async def work(
    app: Redrive, *, upkeep: bool = True, grace: timedelta | None = None, beside: Sequence[Helper] = ()
) -> None:
    """Run a worker of an open app until Ctrl-C or SIGTERM; the second one ends the process at once."""
    above = overseer()
    above.prepare(app)
    upkeep = upkeep and above.wants_upkeep
    worker = Worker(app, upkeep=upkeep, grace=grace, beside=[*beside, lambda: above.watch(worker)])
    stop_on_signals(lambda: above.stop(worker))
    if not above.only_checks:
        await worker.run()


def run_on_fast_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end on an event loop of its own: uvloop's, where that is installed."""
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(main)


def stop_on_signals(stop: Callable[[], None], at_once: Callable[[], None] = lambda: None) -> None:
    """Call `stop` at the first SIGINT or SIGTERM. The second calls `at_once` and ends the process; its leases run out:
    nothing is lost."""
    loop = asyncio.get_running_loop()
    asked = 0

    def on_signal() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            log.warning("stopped at once: what was being handled comes back when its lease ends")
            at_once()
            os._exit(130)
        log.warning("stopping: waiting for what is being handled; once more to stop at once")
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of uvloop's loop; None where it is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
