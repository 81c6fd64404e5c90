"""DeadLetterQueue: failed workflows, kept as letters and retried by a callback."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any

from redrive.clock import Clock, SteadyClock, SystemClock
from redrive.config.durations import Duration
from redrive.errors import ConfigError, StoreUnavailable, UsageError, nearest
from redrive.flow.breaker import BreakerRule
from redrive.flow.classify import Classifier
from redrive.flow.context import Context, Handler
from redrive.flow.decision import Decision
from redrive.forensics.query import Query
from redrive.model import OPEN, Category, Letter, Release, State, letter_id
from redrive.policy import Policy, category_named, positive
from redrive.stores.base import Store, Tally
from redrive.stores.memory import MemoryStore
from redrive.stores.paging import every_letter
from redrive.systems.workflow import statistics
from redrive.systems.workflow.access import AccessManager, require
from redrive.systems.workflow.answers import IN_FLIGHT, answer, why_not
from redrive.systems.workflow.calls import CURRENT, Callback, Calls
from redrive.systems.workflow.capacity import Capacity
from redrive.systems.workflow.dependencies import check_dependencies
from redrive.systems.workflow.enqueue import Enqueuer, Execution, retries_of
from redrive.systems.workflow.errors import DuplicateTask
from redrive.systems.workflow.facts import TaskEnqueued, TaskExhausted, TaskRetried
from redrive.systems.workflow.lifetime import Lifetimes
from redrive.systems.workflow.observe import QueueLog, events_of
from redrive.systems.workflow.opening import opened
from redrive.systems.workflow.policies import (
    AnyPolicy,
    BackoffFunction,
    DeadLetterStatus,
    Policies,
    RetryPolicy,
    as_planned,
)
from redrive.systems.workflow.processor import Cycle, Processor
from redrive.systems.workflow.settings import bounded
from redrive.systems.workflow.shape import INDEX
from redrive.systems.workflow.spool import SpooledStore
from redrive.systems.workflow.statistics import Health
from redrive.systems.workflow.task import SOURCE, TRANSPORT, FailedTask, decoded, policy_of
from redrive.systems.workflow.templates import Template, Templates
from redrive.telemetry.events import Event, Events, LettersMoved, LettersPruned, MessageBuried
from redrive.transports.base import Delivery, Settlement
from redrive.transports.letters import LettersTransport

_MARGIN = timedelta(minutes=1)
_PAGE = 500
_INTERVAL = 60
_NO_CALLBACK = (
    "nobody said how a task is retried: call start_retry_processor(callback) first, or make the queue with "
    "DeadLetterQueue(retry_callback=…)"
)


class DeadLetterQueue:
    """Keeps failed tasks, retries them, and says what became of them.

    max_size               how many open tasks it holds at most
    opensearch_client      keeps them in OpenSearch (index `mahavishnu_dlq`); what is enqueued while it is away is kept
                           in memory, or in the SQLite file `spool`, and handed over when it is back
    observability_manager  an Events, a function that is called with each Event, a logger, or an object with log_info,
                           log_warning and log_error
    store                  keeps them elsewhere: a URL, a path of a SQLite file, or a Store; by default in memory
    retry_callback         how a task is retried, before start_retry_processor names another
    parallel               how many retries run at once; retry_timeout is how long one may take
    rbac_manager           asked before a user retries, archives or clears
    """

    def __init__(
        self,
        max_size: int = 10_000,
        opensearch_client: Any = None,
        observability_manager: Any = None,
        *,
        store: Store | str | Path | None = None,
        spool: str | Path | None = None,
        index: str = INDEX,
        default_retry_policy: AnyPolicy = RetryPolicy.EXPONENTIAL,
        default_max_retries: int = 3,
        retry_callback: Callback | None = None,
        parallel: int = 20,
        retry_timeout: Duration = "5m",
        breaker: BreakerRule | None = None,
        rbac_manager: AccessManager | None = None,
        classifier: Classifier | None = None,
        clock: Clock | None = None,
    ) -> None:
        bounded("max_size", "dlq_max_size", max_size)
        bounded("default_max_retries", "dlq_default_max_retries", default_max_retries)
        if not isinstance(parallel, int) or parallel < 1:
            raise ConfigError(f"parallel={parallel!r}: at least one task is retried at a time")
        self.events = events_of(observability_manager)
        self.classifier = classifier or Classifier(fallback=Category.PERMANENT)
        self.clock: Clock = SteadyClock(clock or SystemClock())
        self._unsubscribe = self.events.subscribe(QueueLog(self.clock.elapsed))
        self.store = opened(opensearch_client, store, spool, index, self.events, self.clock)
        self._closes = self.store is not store
        self._policies = Policies(default_retry_policy)
        self._templates = Templates()
        self._rbac = rbac_manager
        self._capacity = Capacity(self.store, max_size, self.clock, self.events)
        self._lifetime = Lifetimes(self.store.documents, self.clock)
        self._known: Sequence[Tally] = ()  # as last seen, for when the store is away
        self._known_policies: Counter[str] = Counter()
        self._interval: float = _INTERVAL
        self._calls = Calls(retry_callback)
        timeout = positive("retry_timeout", retry_timeout)
        self._transport = LettersTransport(self.store, clock=self.clock, lease=timeout + _MARGIN, resolves=False)
        context = self._context(timeout, parallel)
        self._worker = context.worker
        self._enqueuer = Enqueuer(context, self._policies, self._templates, default_max_retries)
        self._processor = Processor(
            context,
            self._transport,
            self._calls,
            rule=breaker or BreakerRule(),
            before=self._capacity.ask,
            done=self._retried,
        )

    def _context(self, timeout: timedelta, parallel: int) -> Context:
        """The way of a task through the core: the callback is its handler, its letters are where it comes from."""
        events = Events()
        events.subscribe(self._emit)
        handler = Handler(
            source=SOURCE,
            call=self._calls.handle,
            decode=decoded,
            decode_wants_message=True,
            wants_message=False,
            policy=Policy(),
            policy_of=self._policy_of,
            timeout=timeout,
            concurrency=parallel,
            transport=TRANSPORT,
            name="the callback",
        )
        return Context(
            handler=handler,
            transport=self._transport,
            store=self.store,
            classifier=self.classifier,
            events=events,
            clock=self.clock,
            worker=f"workflow:{socket.gethostname()}:{os.getpid()}:{self.clock.new_id()}",
            version="",
            body_limit=sys.maxsize,
            batch=parallel,
            lease=timeout + _MARGIN,
            one_store=True,
        )

    def _policy_of(self, delivery: Delivery) -> Policy:
        letter, attempt = delivery.token.letter, delivery.message.attempt
        if letter.state is State.REPLAYING:
            return as_planned(letter, attempt, self.clock.now())
        return self._policies.policy(policy_of(letter), letter.max_retries, attempt)

    def _emit(self, event: Event) -> None:
        """Pass an event of the core on, and count what is exhausted."""
        self.events.emit(event)
        if isinstance(event, MessageBuried) and event.state is State.EXHAUSTED:
            self._lifetime.add(exhausted=1)
            self.events.emit(TaskExhausted(task_id=event.message, error=event.failure.message))

    @property
    def retry_callback(self) -> Callback | None:
        """How a task is retried."""
        return self._calls.callback

    @retry_callback.setter
    def retry_callback(self, callback: Callback | None) -> None:
        self._calls.callback = callback

    @property
    def max_size(self) -> int:
        """How many open tasks it holds at most."""
        return self._capacity.max_size

    @max_size.setter
    def max_size(self, number: int) -> None:
        self._capacity.max_size = bounded("max_size", "dlq_max_size", number)

    # -- putting in --------------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        task_id: str,
        task: Mapping[str, Any],
        repos: Iterable[str | PurePath],
        error: str | BaseException,
        retry_policy: AnyPolicy | None = None,
        max_retries: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        error_category: Category | str | None = None,
        *,
        after: Iterable[str] | str = (),
        template: str | None = None,
    ) -> FailedTask:
        """Keep a failed task. Durable when it returns, as far as the store is.

        The same task_id again is the same task: its failure joins those before, and its retries begin anew. While a
        retry of it is under way, that retry decides, and nothing changes.

        after       ids of tasks: this one is not retried before they are resolved or archived
        template    the name of a registered template; without it, the first that fits is used
        """
        current = CURRENT.get()
        if current is not None and current.message.id == task_id:
            return FailedTask(current)
        known = await self._find(task_id)
        execution = Execution(
            task_id=task_id,
            task=task,
            repos=repos if isinstance(repos, str) else list(repos),
            error=error if isinstance(error, str | BaseException) else str(error),
            retry_policy=retry_policy,
            max_retries=max_retries,
            metadata=metadata,
            error_category=error_category,
            after=(after,) if isinstance(after, str) else tuple(after),
            template=template,
        )
        letter = self._enqueuer.letter(execution, known)
        if execution.after and (not isinstance(self.store, SpooledStore) or self.store.letters.is_available):
            await check_dependencies(task_id, execution.after, self._find)
        if known is not None and known.state in OPEN:
            if known.message.body != letter.message.body:
                raise DuplicateTask(task_id)
            if known.state in IN_FLIGHT:
                return FailedTask(known)
            await self.store.letters.record([letter])
        else:
            async with self._capacity.for_one(task_id):
                await self.store.letters.record([letter])
        self._lifetime.add(enqueued_total=1)
        self.events.emit(MessageBuried.of(letter, SOURCE))
        enqueued = FailedTask(letter)
        self._tell_of(enqueued)
        return enqueued

    def _tell_of(self, task: FailedTask) -> None:
        """Emit that it was enqueued."""
        self.events.emit(
            TaskEnqueued(
                task_id=task.task_id,
                retry_policy=str(task.retry_policy),
                max_retries=task.max_retries,
                error_category=task.error_category.value,
                error=task.last_error,
                spooled=isinstance(self.store, SpooledStore) and not self.store.letters.is_available,
            )
        )

    def register_backoff(self, name: str, function: BackoffFunction) -> None:
        """`retry_policy="name"` from now on waits as that function of the retry count says."""
        self._policies.register(name, function)

    def register_template(self, template: Template) -> None:
        """Use the template for every failure that it fits and that was given no policy of its own."""
        if template.retry_policy is not None:
            self._policies.name_of(template.retry_policy)
        if template.max_retries is not None:
            retries_of(template.max_retries)
        self._templates.register(template)

    # -- looking -----------------------------------------------------------------------------------------------------

    async def get_task(self, task_id: str) -> FailedTask | None:
        """That task, whatever its status; None if there is none."""
        letter = await self.store.letters.get(letter_id(SOURCE, task_id))
        return None if letter is None else FailedTask(letter)

    async def list_tasks(
        self,
        status: DeadLetterStatus | str | None = None,
        limit: int | None = None,
        *,
        error_category: Category | str | None = None,
    ) -> list[FailedTask]:
        """Newest first. Without a status, those that are open: pending, retrying or exhausted."""
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise UsageError(f"limit={limit!r}: it is a number of tasks, 0 or more")
        query = Query(
            sources=(SOURCE,),
            states=OPEN if status is None else _status(status).states,
            categories=None if error_category is None else (category_named(error_category),),
        )
        return [FailedTask(letter) async for letter in every_letter(self.store.letters, query, limit=limit)]

    async def get_statistics(self) -> dict[str, Any]:
        """The queue in numbers. While its store is away: as last seen, and what waits for it."""
        available = True
        try:
            self._known = await self._capacity.ask()
            self._known_policies = await self._policy_counts()
            await self._lifetime.read()
        except (StoreUnavailable, ConfigError):
            available = False
        tallies, policies = list(self._known), Counter(self._known_policies)
        spooled = 0
        if isinstance(self.store, SpooledStore) and (spooled := self.store.letters.spooled):
            tallies += await self.store.letters.spooled_tallies()
            page = await self.store.spool.letters.search(Query(), limit=spooled)
            policies.update(str(policy_of(letter)) for letter in page.letters)
        return statistics.shown(
            tallies,
            policies,
            self._lifetime.total,
            max_size=self.max_size,
            is_running=self._processor.is_running,
            interval=self._interval,
            persistence={"available": available, "waiting": spooled, "breakers": self._processor.breakers},
        )

    async def get_health(self) -> Health:
        """The few numbers that alerts look at: cheaper than all statistics. Raises StoreUnavailable."""
        tallies = await self._capacity.ask()
        exhausted = statistics.breakdown(tallies)[DeadLetterStatus.EXHAUSTED]
        return Health(statistics.open_count(tallies), self.max_size, exhausted, await self._lifetime.read())

    async def _policy_counts(self) -> Counter[str]:
        query = Query(sources=(SOURCE,), states=OPEN)
        return Counter([str(policy_of(letter)) async for letter in every_letter(self.store.letters, query)])

    async def _find(self, task_id: str) -> Letter | None:
        if not isinstance(task_id, str) or not task_id:
            raise UsageError(f"task_id={task_id!r}: it has to be text, and not empty")
        id = letter_id(SOURCE, task_id)
        if isinstance(self.store, SpooledStore):  # if it is known there after all, it joins when it is handed over
            return await self.store.letters.seen(id)
        return await self.store.letters.get(id)

    # -- retrying ----------------------------------------------------------------------------------------------------

    async def start_retry_processor(
        self, callback: Callback | None = None, check_interval_seconds: float = _INTERVAL
    ) -> None:
        """From now on, retry what is due. A processor that runs already goes on, with the callback given here."""
        self._calls.callback = callback or self._calls.callback
        if self._calls.callback is None:
            raise UsageError(_NO_CALLBACK)
        bounded("check_interval_seconds", "dlq_retry_interval_seconds", check_interval_seconds)
        span = timedelta(seconds=check_interval_seconds)
        self._interval = check_interval_seconds
        if not self._processor.is_running:
            self._processor.start(span)

    async def stop_retry_processor(self, grace: Duration = "25s") -> None:
        """Retries that run may finish within the grace; then they are stopped, and their tasks wait as before."""
        await self._processor.stop(positive("grace", grace))

    async def run_retry_cycle(self, callback: Callback | None = None) -> Cycle:
        """One cycle now, without a processor: for a cron job, or a test. What it did."""
        self._calls.callback = callback or self._calls.callback
        if self._calls.callback is None:
            raise UsageError(_NO_CALLBACK)
        return await self._processor.cycle()

    async def retry_task(self, task_id: str, user_id: str | None = None) -> dict[str, Any]:
        """Retry it now, whether or not it is due or exhausted: `success`, and `result` or `error`."""
        await require(self._rbac, user_id, "retry")
        if self._calls.callback is None:
            return answer(task_id, error=_NO_CALLBACK)
        await self._processor.rescue()
        delivery = await self._transport.take_one(letter_id(SOURCE, task_id))
        if delivery is None:
            return answer(task_id, error=await self._why_not(task_id))
        self._lifetime.add(manually_retried=1)
        try:  # in a task of its own: what runs in it knows that it is a retry
            attempted, value = await asyncio.create_task(self._processor.attempt(delivery))
        except BaseException:
            await self._transport.settle([Settlement(delivery, Release())])
            raise
        await self._processor.keep(attempted)
        if attempted.failure is None:
            return answer(task_id, result=value)
        return answer(task_id, error=attempted.failure.message or attempted.failure.type, result=value)

    async def _why_not(self, task_id: str) -> str:
        letter = await self.store.letters.get(letter_id(SOURCE, task_id))
        if letter is not None:
            return why_not(letter)
        gone = ": what was resolved, or never enqueued, is not in memory" if isinstance(self.store, MemoryStore) else ""
        return f"there is no task {task_id!r}{gone}"

    async def _retried(self, batch: Sequence[Decision]) -> None:
        """Count retries whose outcomes are written. What is resolved leaves memory; a store that lasts keeps it."""
        for item in batch:
            self._tell_of_retry(item)
        resolved = [item.delivery.token.letter.id for item in batch if item.failure is None]
        self._lifetime.add(retry_success=len(resolved), retry_failed=len(batch) - len(resolved))
        if resolved and isinstance(self.store, MemoryStore):
            await self.store.letters.prune(Query(ids=tuple(resolved), states=(State.RESOLVED,)), limit=len(resolved))

    def _tell_of_retry(self, item: Decision) -> None:
        """Emit what a retry came to."""
        letter, error = item.delivery.token.letter, None if item.failure is None else item.failure.message
        by_hand, name = letter.state is State.REPLAYING, letter.message.id
        attempt = len(letter.failures) + 1
        self.events.emit(
            TaskRetried(task_id=name, success=error is None, attempt=attempt, by_hand=by_hand, error=error)
        )

    # -- putting away ------------------------------------------------------------------------------------------------

    async def archive_task(self, task_id: str, user_id: str | None = None) -> bool:
        """Archive a task: it is kept, takes up no capacity and is not retried. Whether there was one to archive."""
        await require(self._rbac, user_id, "archive")
        moved = await self.store.letters.move(
            [letter_id(SOURCE, task_id)], expect=[*OPEN, State.RESOLVED], to=State.ARCHIVED, now=self.clock.now()
        )
        if moved:
            self._lifetime.add(archived=1)
            self.events.emit(LettersMoved(to=State.ARCHIVED, count=1, actor=user_id or self._worker))
        return bool(moved)

    async def clear_all(self, user_id: str | None = None) -> int:
        """Delete every task for good, archived ones and those being retried included. Returns how many."""
        await require(self._rbac, user_id, "clear")
        everything, total = Query(sources=(SOURCE,)), 0
        claimed = every_letter(self.store.letters, Query(sources=(SOURCE,), states=IN_FLIGHT))
        ids = [letter.id async for letter in claimed]
        await self.store.letters.move(ids, expect=IN_FLIGHT, to=State.ARCHIVED, now=self.clock.now())
        while gone := await self.store.letters.prune(everything, limit=_PAGE):
            total += len(gone)
        self._capacity.forget()
        self.events.emit(LettersPruned(count=total, why=f"the queue was cleared by {user_id or self._worker}"))
        return total

    async def aclose(self) -> None:
        """Stop retrying, and let go of the store, unless it was given."""
        await self.stop_retry_processor()
        await self._lifetime.aclose()
        self._unsubscribe()
        if self._closes:
            await self.store.aclose()

    async def __aenter__(self) -> DeadLetterQueue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _status(name: DeadLetterStatus | str) -> DeadLetterStatus:
    try:
        return DeadLetterStatus(name)
    except ValueError:
        raise UsageError(f"unknown status {name!r}{nearest(str(name), map(str, DeadLetterStatus))}") from None
