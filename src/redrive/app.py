"""Redrive: the object a developer holds. Handlers are registered on it, messages are sent through it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from redrive.clock import Clock, SystemClock
from redrive.config.code_version import version_of
from redrive.config.durations import Duration, duration
from redrive.config.load import read
from redrive.config.settings import Settings
from redrive.debugging.isolation import isolation
from redrive.errors import ConfigError, MessageTooLarge, UnknownSource, UsageError, not_sent
from redrive.flow.around import Around, arounds, wrapped, wrapped_batch
from redrive.flow.callables import is_async, name_of, refusing
from redrive.flow.classify import Classifier
from redrive.flow.context import BatchSpan, Context, Handler, Span
from redrive.flow.decode import Decoder, batch_signature_of, decode_wants_message, encode, signature_of
from redrive.flow.exactly_once import connection_parameter, given_connection, in_transactions
from redrive.flow.held import KeyHolds
from redrive.flow.signing import use_key
from redrive.flow.storms import StormGuard
from redrive.flow.threads import InThisThread, Threads
from redrive.flow.validate import GivenHeaders, bytes_of, headers_of, moment_of, priority_of, text_of
from redrive.forensics.failures import FailureMask
from redrive.forensics.redact import Redactor
from redrive.forensics.searchable import Searchable
from redrive.limits import Fair, Limits, Rate
from redrive.model import Holds, Message, MessageId
from redrive.policy import Policy
from redrive.registry import naming, open_store, open_transport
from redrive.stores.base import Store
from redrive.telemetry.events import Events
from redrive.telemetry.observed import Observed
from redrive.transports.base import (
    DeadLetterPlace,
    HasDeadLetterPlace,
    KeepsLimits,
    KeepsOrder,
    KnowsWorkers,
    MovesKeys,
    SendResult,
    SendStatus,
    SendsWithin,
    Transport,
    send_each,
)

if TYPE_CHECKING:
    from redrive.alerts.model import Notifier

_WITHIN = timedelta(milliseconds=200)
_LARGEST_BATCH = 10_000
F = TypeVar("F", bound=Callable[..., Any])
Inject: TypeAlias = Callable[[GivenHeaders], GivenHeaders]


class Wraps(NamedTuple):
    """What a user puts before and around a handler."""

    decode: Decoder | None
    around: Sequence[Around]  # the outermost first
    batching: Batching | None = None  # it takes lists
    exactly_once: bool = False  # its work and its ack are one transaction


class Redrive:
    """One application: its handlers, its transports, its store.

    Without arguments it is embedded: one SQLite file, `redrive.db`, holds queue and letters. What is given here
    wins over the configuration file and the environment.

    version   of your own code, noted in failures and told by workers. By default that of the distribution which the
              module of a handler belongs to, or what git calls its directory
    """

    def __init__(
        self,
        *,
        transport: str | Transport | None = None,
        store: str | Store | None = None,
        settings: Settings | None = None,
        config: Path | None = None,
        clock: Clock | None = None,
        classifier: Classifier | None = None,
        version: str | None = None,
    ) -> None:
        found = read(config) if settings is None else None
        self.settings = found.settings if found is not None else settings or Settings()
        self.settings_from = None if found is None else found.sources  # None: the program gave them
        use_key(self.settings.lineage.key)
        self.clock: Clock = clock or SystemClock()
        self.events = Events()
        self.observed = Observed(self.events, self.clock)
        self.classify = classifier or Classifier()
        self._mask = FailureMask(Redactor.of(self.settings.redact))
        self.handlers: dict[str, Handler] = {}
        self.span: Span | None = None
        self.batch_span: BatchSpan | None = None
        self.notifiers: list[Notifier] = []  # your own, beside those of `alerts.urls`
        self._version = self.settings.version if version is None else text_of("version", version)
        self.inject: Inject | None = None  # adds the trace to what is sent (telemetry/tracing.py)
        self._declared: dict[str, str] = {}
        self._transports: dict[str, Transport] = {}
        self._store: Store | None = None
        self._urls: dict[str, str] = dict(self.settings.transports)
        self._store_url = self.settings.store
        self._threads = Threads("redrive-handler")
        self._take(transport, store)

    def _take(self, transport: str | Transport | None, store: str | Store | None) -> None:
        if isinstance(transport, str):
            self._urls["default"] = transport
            if store is None and transport.startswith("sqlite://"):
                self._store_url = transport  # embedded means one file
        elif transport is not None:
            self._transports["default"] = transport
        if isinstance(store, str):
            self._store_url = store
        elif store is not None:
            self._store = store

    # -- registering ---------------------------------------------------------------------------------------------

    def handler(
        self,
        source: str,
        *,
        policy: Policy | None = None,
        concurrency: int | None = None,
        transport: str = "default",
        rate: Rate | None = None,
        fair: bool | Fair = False,
        decode: Decoder | None = None,
        around: Around | Sequence[Around] | None = None,
        batch: int | None = None,
        within: Duration | None = None,
        exactly_once: bool = False,
    ) -> Callable[[F], F]:
        """Handle the messages of that source. The function may be sync or async, a method, a partial or an object with
        `__call__`; its first parameter is the body, decoded to what its annotation says, its second, if there is one,
        the Message.

        rate    at most so many within any span of time, over all workers: `Rate(100, "60s")`
        fair    tenants take turns, over all workers: True, or `Fair(...)` for more than the defaults
        decode  makes the body a value, instead of the annotation: a function that takes the bytes and, if it has two
                parameters, the Message. What it raises makes the message undecodable: it is buried at once
        around  runs around each call of the handler: `async def around(message, call): ... await call() ...`; or
                several, the outermost first. It is a part of the attempt: its time counts, what it raises is the
                failure, and if it does not await `call`, the message is done without its handler
        batch   it takes lists of up to so many bodies, and of Messages; `concurrency` is then the number of batches at
                a time, 1 unless it is given. It fails single ones by raising `Failed({2: error})`, or by returning an
                outcome for each: None, or its exception. If it raises anything else, `Policy(batch_failure=…)`
                says how the batch is tried again in smaller pieces
        within  how long a batch that is not full waits for more at most, counted from its first message: 200ms
        exactly_once  what it writes with its parameter `connection` is committed together with the ack, so that effects
                in that database happen exactly once; for transports that are a database, such as postgresql://
        """
        if callable(source):
            with refusing(source):
                raise ConfigError("a handler is registered for a source: write @app.handler('orders')")

        def register(function: F) -> F:
            with refusing(function):
                limits = _limits(rate, fair)
                wraps = Wraps(decode, arounds(around), batching(batch, within), exactly_once)
                rule = Policy() if policy is None else policy
                self._register(source, function, rule, concurrency, transport, limits, wraps)
            return function

        return register

    def declare(self, *sources: str, transport: str = "default") -> None:
        """Sources that others handle, so that sending to them is no typo."""
        self._declared.update(dict.fromkeys(sources, transport))

    @property
    def sources(self) -> set[str]:
        """Those with a handler here, and those declared."""
        return {*self.handlers, *self._declared}

    @property
    def version(self) -> str:
        """The version of the user's code: as given, as set, or as found once there is a handler; empty: not known."""
        if not self._version:
            modules = (handler.name.partition(":")[0] for handler in self.handlers.values())
            own = next((module for module in modules if not module.startswith("redrive.")), None)
            self._version = "" if own is None else version_of(own)
        return self._version

    def known_transport(self, source: str) -> str | None:
        """The name of the transport of that source, if it has a handler here or is declared."""
        return self.handlers[source].transport if source in self.handlers else self._declared.get(source)

    def _register(
        self,
        source: str,
        function: Callable[..., Any],
        policy: Policy,
        concurrency: int | None,
        transport: str,
        limits: Limits,
        wraps: Wraps,
    ) -> None:
        try:
            text_of("source", source)
        except UsageError:
            raise ConfigError(f"{source!r} is no name for a source") from None
        if source in self.handlers:
            raise ConfigError(f"source {source!r} has a handler already: {self.handlers[source].name}")
        if transport not in self._urls and transport not in self._transports:
            raise ConfigError(f"transport {transport!r} is not configured: there is {', '.join(self._urls)}")
        if (apart := isolation()) is not None:
            function = apart.prepared(function)
        batching, default = wraps.batching, self.settings.concurrency if wraps.batching is None else 1
        width = default if concurrency is None else concurrency
        if not isinstance(width, int) or width < 1:
            raise ConfigError(f"concurrency={width!r}: at least one message is handled at a time")
        if not isinstance(policy, Policy):
            raise ConfigError(f"policy={policy!r}: it takes a Policy, such as Policy(attempts=5)")
        if batching and wraps.exactly_once:
            raise ConfigError("exactly_once=True is for handlers that take one message: leave out `batch`")
        parameter = connection_parameter(function) if wraps.exactly_once else ""
        decode, wants_message = (
            batch_signature_of(function, wraps.decode)
            if batching
            else signature_of(function, wraps.decode, without=parameter)
        )
        call: Callable[..., Awaitable[Any]]
        call = function if is_async(function) else self._in_thread(function)
        if parameter:
            call = given_connection(call, parameter)
        if batching and wraps.around:
            call, wants_message = wrapped_batch(call, wants_message, wraps.around), True
        for around in () if batching else reversed(wraps.around):
            call, wants_message = wrapped(call, wants_message, around), True
        self.handlers[source] = Handler(
            source=source,
            call=call,
            decode=decode,
            decode_wants_message=wraps.decode is not None and decode_wants_message(wraps.decode),
            wants_message=wants_message,
            policy=policy,
            timeout=policy.timeout or self.settings.timeout,
            concurrency=width,
            transport=transport,
            name=name_of(function),
            limits=limits,
            batch=batching.size if batching else None,
            within=batching.within if batching else timedelta(),
            exactly_once=wraps.exactly_once,
            function=function,
        )
        if transport in self._transports:
            self._set_limits(self._transports[transport], [self.handlers[source]])

    def _in_thread(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """A sync handler runs in a thread, so that it never stops the loop. One that hangs keeps its thread after its
        attempt timed out, because Python cannot end it; another thread takes its place."""

        async def call(*arguments: Any) -> Any:
            inside = contextvars.copy_context().run  # a thread sees the trace of its attempt, as a coroutine does
            answer = await self._threads.run(functools.partial(inside, function, *arguments))
            # a decorator may hide that a handler is async: what came back is then the work, and not its result
            return await answer if inspect.isawaitable(answer) else answer

        return call

    # -- sending -------------------------------------------------------------------------------------------------

    async def send(
        self,
        source: str,
        body: Any,
        *,
        id: MessageId | None = None,
        key: str | bytes | None = None,
        tenant: str | None = None,
        correlation_id: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int = 0,
        ttl: Duration | None = None,
        delay: Duration | None = None,
        after: Iterable[MessageId] = (),
        connection: Any = None,
    ) -> MessageId:
        """Durable when it returns; gives the message's id. The same id again, while it is queued, changes nothing.
        Raises NotSent, which says why, if the transport has not accepted it.

        delay   it is not received before, where the transport has a delay of its own
        after   ids of messages: if this one is buried, it is not retried before their letters are resolved or archived
        connection   yours, in a transaction, to the database that has the queue (postgresql://): the message exists
                exactly when that transaction commits. Of psycopg, asyncpg or SQLAlchemy
        """
        message = self.message(
            source,
            body,
            id=id,
            key=key,
            tenant=tenant,
            correlation_id=correlation_id,
            headers=headers,
            priority=priority,
            ttl=ttl,
            delay=delay,
            after=after,
        )
        way = self._way_of(message)
        if connection is not None:
            return await self._send_within(connection, way, message)
        [result] = await send_each(self.transport(way), [message])
        if result.status is not SendStatus.ACCEPTED:
            raise not_sent([(message, result)])
        return message.id

    async def _send_within(self, connection: Any, way: str, message: Message) -> MessageId:
        transport = self.transport(way)
        if not isinstance(transport, SendsWithin):
            raise UsageError(f"connection=: transport {way!r} is in no database: only postgresql:// sends within yours")
        await transport.send_within(connection, message)
        return message.id

    def message(
        self,
        source: str,
        body: Any,
        *,
        id: MessageId | None = None,
        key: str | bytes | None = None,
        tenant: str | None = None,
        correlation_id: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        priority: int = 0,
        ttl: Duration | None = None,
        delay: Duration | None = None,
        after: Iterable[MessageId] = (),
    ) -> Message:
        """The message that `send` would send."""
        data = encode(body)
        if len(data) > self.settings.body_limit:
            raise MessageTooLarge(len(data), self.settings.body_limit)
        for name, text in (("id", id), ("tenant", tenant), ("correlation_id", correlation_id)):
            if text is not None:
                text_of(name, text)
        now = self.clock.now()
        return Message(
            id=self.clock.new_id() if id is None else id,
            source=text_of("source", source),
            body=data,
            enqueued_at=now,
            headers=headers_of(self.inject(headers or {}) if self.inject else headers, after),
            key=None if key is None else bytes_of("key", key),
            tenant=tenant,
            correlation_id=correlation_id,
            priority=priority_of(priority),
            expires_at=moment_of("ttl", ttl, now),
            not_before=moment_of("delay", delay, now),
        )

    async def send_messages(self, messages: Sequence[Message]) -> None:
        """Many at once: one write for each transport. Durable when it returns; NotSent, if some were not accepted, has
        what became of each."""
        by_transport: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            by_transport.setdefault(self._way_of(message), []).append(number)
        results: dict[int, SendResult] = {}
        for name, numbers in by_transport.items():
            answers = await send_each(self.transport(name), [messages[n] for n in numbers])
            results.update(zip(numbers, answers, strict=True))
        if any(result.status is not SendStatus.ACCEPTED for result in results.values()):
            raise not_sent([(message, results[number]) for number, message in enumerate(messages)])

    def _way_of(self, message: Message) -> str:
        """The name of the transport that can carry it."""
        name = self._transport_of(message.source)
        if message.not_before is not None and not self.transport(name).features.delays_sends:
            raise UsageError(f"transport {name!r} cannot delay a message: send it when it is due, or without `delay`")
        return name

    def _transport_of(self, source: str) -> str:
        if source in self.handlers:
            return self.handlers[source].transport
        if source in self._declared or not self.sources:
            return self._declared.get(source, "default")
        raise UnknownSource(source, self.sources, f"If somebody else handles it, say app.declare({source!r})")

    # -- what it runs on -----------------------------------------------------------------------------------------

    def transport(self, name: str = "default") -> Transport:
        """The transport of that name, opened when it is first needed."""
        if (apart := isolation()) is not None:
            return apart.transport
        if name not in self._transports:
            if name not in self._urls:
                raise ConfigError(f"transport {name!r} is not configured: there is {', '.join(self._urls)}")
            with naming(f"transports.{name}"):
                opened = open_transport(self._urls[name], clock=self.clock, lease=self.settings.lease)
            self._transports[name] = opened
            self._set_limits(opened, [handler for handler in self.handlers.values() if handler.transport == name])
        return self._transports[name]

    def _set_limits(self, transport: Transport, handlers: Iterable[Handler]) -> None:
        """So that what is sent before any worker has run waits under its limits, too."""
        if isinstance(transport, KeepsLimits):
            for handler in handlers:
                if handler.limits.asks:
                    transport.limit(handler.source, handler.limits)

    @contextmanager
    def in_this_thread(self) -> Iterator[None]:
        """Run sync handlers in the thread of the event loop meanwhile: for a debugger, which holds it up anyway."""
        before, self._threads = self._threads, InThisThread("redrive-handler")
        try:
            yield
        finally:
            self._threads = before

    def use(self, name: str, transport: Transport) -> None:
        """That transport under that name, whatever the settings say of it."""
        self._transports[name] = transport

    @property
    def transport_names(self) -> list[str]:
        """The names of every configured transport; none is opened for it."""
        return list({**self._urls, **self._transports})

    @property
    def transports(self) -> Mapping[str, Transport]:
        """Every configured transport, opened when it is first asked for: one that cannot be takes no other down."""
        return _Transports(self)

    @property
    def store(self) -> Store:
        if (apart := isolation()) is not None:
            return apart.store
        if self._store is None:
            with naming("store"):
                self._store = open_store(self._store_url, searchable=Searchable.of(self.settings.redact))
        return self._store

    @property
    def urls(self) -> dict[str, str]:
        """What is configured, for `doctor`."""
        return {"store": self._store_url, **{f"transports.{name}": url for name, url in self._urls.items()}}

    def context(self, handler: Handler) -> Context:
        """Everything that handler's messages need on their way."""
        transport, holds = self.transport(handler.transport), handler.policy.holds
        if isinstance(transport, KnowsWorkers) and self.settings.worker:
            transport.join_as(self.settings.worker)
        if isinstance(transport, KeepsOrder):
            by_key = transport.features.ordered_by == "key"  # elsewhere order is kept where it is asked for
            by_key |= handler.policy.on_death is not None and not handler.limits.fair  # what is held is to be in order
            transport.keep_order(handler.source, holds or (Holds.KEY if by_key else Holds.NOTHING))
        elif holds not in (None, Holds.NOTHING):
            raise ConfigError(
                f"{handler.source!r}: holds={holds.value!r} needs a transport that keeps order, as Kafka or PostgreSQL"
            )
        if handler.limits.asks:
            _limit(transport, handler)
        place = transport.dead_letter_place(handler.source) if isinstance(transport, HasDeadLetterPlace) else None
        context = Context(
            handler=handler,
            transport=transport,
            store=self.store,
            classifier=self.classify,
            events=self.events,
            clock=self.clock,
            worker=self.settings.worker_name,
            version=self.version,
            body_limit=self.settings.body_limit,
            batch=_fetched_at_once(handler, self.settings),
            lease=self.settings.lease,
            span=self.span,
            batch_span=self.batch_span,
            dead_letter_place=place,
            holds=self._key_holds(handler, transport, place),
            storm=self._storm_guard(handler),
            mask=self._mask,
        )
        return in_transactions(context) if handler.exactly_once else context

    def _key_holds(self, handler: Handler, transport: Transport, place: DeadLetterPlace | None) -> KeyHolds | None:
        """Which keys of that source are held, where its policy holds them."""
        rule = handler.policy.on_death
        if rule is None:
            return None
        if place is not None and place.replaces_store:
            raise ConfigError(
                f"{handler.source!r}: on_death='hold-key' needs its letters in the store, to know which are resolved. "
                "Leave out `dlq_only` of its transport"
            )
        return KeyHolds(
            self.store.documents,
            self.clock,
            transport=handler.transport,
            source=handler.source,
            rule=rule,
            # keys in order, and any worker may get the next one: what another has held a moment ago must be known
            always_fresh=isinstance(transport, KeepsOrder) and not isinstance(transport, MovesKeys),
        )

    def _storm_guard(self, handler: Handler) -> StormGuard | None:
        rule = handler.policy.storm
        if rule is None:
            return None
        return StormGuard(
            self.store.documents,
            self.clock,
            transport=handler.transport,
            source=handler.source,
            worker=self.settings.worker_name,
            rule=rule,
        )

    async def aclose(self) -> None:
        """Let go of transports and store. A transport that hangs or fails keeps no other open."""
        transports, store = self._transports, self._store
        self._transports, self._store = {}, None
        closed = await asyncio.gather(*(each.aclose() for each in transports.values()), return_exceptions=True)
        if store is not None:
            await store.aclose()
        self._threads.close()
        for error in filter(None, closed):
            raise error

    async def __aenter__(self) -> Redrive:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def run(
        self, *, upkeep: bool = True, grace: timedelta | None = None, beside: Sequence[Callable[[], Any]] = ()
    ) -> None:
        """Handle messages until Ctrl-C or SIGTERM; what is given as `beside` runs until then too."""
        from redrive.worker import run

        run(self, upkeep=upkeep, grace=grace, beside=beside)


class Batching(NamedTuple):
    """How a batch handler wants its batches."""

    size: int
    within: timedelta


def batching(size: int | None, within: Duration | None) -> Batching | None:
    """What was asked for; None: one message at a time."""
    if size is None:
        if within is not None:
            raise ConfigError(f"within={within!r} is for batch handlers: say how large a batch may be, as batch=500")
        return None
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _LARGEST_BATCH:
        raise ConfigError(f"batch={size!r}: it is the most messages of a batch, 1 to {_LARGEST_BATCH:,}")
    try:
        return Batching(size, _WITHIN if within is None else duration(within))
    except ConfigError as error:
        raise ConfigError(f"within: {error}") from None


def _fetched_at_once(handler: Handler, settings: Settings) -> int:
    """How many messages are received at a time. What is taken ahead of a rate may begin too late, together with what
    the rate allows then."""
    size = handler.batch or 1
    at_once = max(settings.batch, size)
    return min(at_once, handler.concurrency * size) if handler.limits.rate else at_once


class _Transports(Mapping[str, Transport]):
    """The transports of an app by their names, as they are now."""

    def __init__(self, app: Redrive) -> None:
        self._app = app

    def __getitem__(self, name: str) -> Transport:
        if name not in self._app.transport_names:
            raise KeyError(name)
        return self._app.transport(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._app.transport_names)

    def __len__(self) -> int:
        return len(self._app.transport_names)


def _limits(rate: Rate | None, fair: bool | Fair) -> Limits:
    if rate is not None and not isinstance(rate, Rate):
        raise ConfigError(f"rate={rate!r}: it takes a Rate, such as Rate(100, '60s')")
    if not isinstance(fair, bool | Fair):
        raise ConfigError(f"fair={fair!r}: it takes True, or a Fair")
    return Limits(rate, Fair() if fair is True else fair or None)


def _limit(transport: Transport, handler: Handler) -> None:
    if not isinstance(transport, KeepsLimits):
        raise ConfigError(
            f"the handler of {handler.source!r} asks for {handler.limits}, which transport {handler.transport!r} "
            "cannot keep over all workers: use one that can, such as redis://"
        )
    transport.limit(handler.source, handler.limits)
