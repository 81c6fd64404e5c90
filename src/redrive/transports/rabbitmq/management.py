"""RabbitMQ's management API: what is declared on a live broker, and how it becomes what is wanted.

A broker refuses a declaration that differs from what it has, but only when it comes to it. So everything is compared
first, and nothing is touched if anything clashes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct

from redrive.errors import ConfigError, MissingExtra, RedriveError, TransportUnavailable
from redrive.transports.rabbitmq.definitions import Definitions, binding_entry, exchange_entry, queue_entry
from redrive.transports.rabbitmq.topology import Declared, DeclaredBinding, DeclaredExchange, DeclaredQueue

try:
    import httpx
except ImportError as error:  # pragma: no cover
    raise MissingExtra("RabbitMQ's management API", "rabbitmq") from error

_TIMEOUT = 20.0


class Clashes(RedriveError):
    """The broker has something of the same name that is different; nothing was changed."""

    def __init__(self, clashes: Sequence[str]) -> None:
        self.clashes = tuple(clashes)
        lines = "\n".join(f"  {clash}" for clash in clashes)
        super().__init__(
            f"the broker has declarations of the same name that differ, so nothing was changed:\n{lines}\n"
            "Delete or rename those on the broker once they are empty, or make the topology agree with them."
        )


class Difference(Struct, frozen=True):
    """What is wanted and not there, there in another form, and there beside it on the queues that are wanted."""

    missing: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        return not (self.missing or self.clashes or self.extra)


class InHand(Struct, frozen=True):
    """How many messages of a queue consumers have and have not acknowledged, and the connections of these."""

    unacknowledged: int
    connections: tuple[str, ...]


class Management:
    """One virtual host of a broker, through `http://user:password@host:15672`."""

    def __init__(self, url: str, *, vhost: str = "/", transport: httpx.AsyncBaseTransport | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"{parts.scheme or url!r} is no address of RabbitMQ's management API: it looks like http://host:15672"
            )
        self.name = f"RabbitMQ's management API ({parts.hostname}:{parts.port or 15672})"
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        port = parts.port or (443 if parts.scheme == "https" else 15672)
        self._vhost = vhost
        self._client = httpx.AsyncClient(
            base_url=f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}/api/",
            auth=(parts.username or "guest", parts.password or "guest"),
            timeout=_TIMEOUT,
            transport=transport,
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def difference(self, wanted: Declared) -> Difference:
        """How the broker differs from what is wanted."""
        live = await self._live()
        return Difference(
            missing=tuple(_name(part) for part in _missing(wanted, live)),
            clashes=tuple(_clashes(wanted, live)),
            extra=tuple(_name(part) for part in _extra(wanted, live)),
        )

    async def apply(self, wanted: Declared) -> Sequence[str]:
        """Declare what is missing; what was declared. Clashes, before anything is touched, if anything clashes."""
        live = await self._live()
        clashes = list(_clashes(wanted, live))
        if clashes:
            raise Clashes(clashes)
        missing = list(_missing(wanted, live))
        if missing:
            await self._call("POST", f"definitions/{_quoted(self._vhost)}", _definitions(missing, self._vhost))
        return [_name(part) for part in missing]

    async def depths(self, queues: Iterable[str]) -> dict[str, int | None]:
        """How many messages each holds; None: there is no such queue. These lag behind by some seconds."""
        rows = await self._call("GET", f"queues/{_quoted(self._vhost)}")
        found = {row["name"]: int(row.get("messages", 0)) for row in rows}
        return {name: found.get(name) for name in queues}

    async def holding(self) -> dict[str, int]:
        """How many messages each queue holds. These lag behind by some seconds."""
        rows = await self._call("GET", f"queues/{_quoted(self._vhost)}")
        return {str(row["name"]): int(row.get("messages", 0)) for row in rows}

    async def in_hand(self, queue: str) -> InHand | None:
        """What consumers have of that queue; None: there is no such queue. It lags behind by some seconds."""
        rows = await self._call("GET", f"queues/{_quoted(self._vhost)}")
        if not any(row["name"] == queue for row in rows):
            return None
        row = await self._call("GET", f"queues/{_quoted(self._vhost)}/{_quoted(queue)}")
        consumers = [detail.get("channel_details") or {} for detail in row.get("consumer_details", [])]
        names = tuple(sorted({str(channel.get("connection_name", "somebody")) for channel in consumers}))
        return InHand(int(row.get("messages_unacknowledged", 0)), names)

    async def alarms(self) -> Sequence[str]:
        """Why it takes nothing from publishers now, in its own words."""
        answer = await self._call("GET", "health/checks/alarms", fine=(503,))
        if answer["status"] == "ok":
            return []
        return [
            f"{alarm.get('resource', 'unknown')} on {alarm.get('node', 'a node')}" for alarm in answer.get("alarms", [])
        ] or [str(answer.get("reason", "it does not say which"))]

    async def _live(self) -> Declared:
        place = _quoted(self._vhost)
        exchanges = await self._call("GET", f"exchanges/{place}")
        queues = await self._call("GET", f"queues/{place}")
        bindings = await self._call("GET", f"bindings/{place}")
        return Declared(
            tuple(_exchange(row) for row in exchanges),
            tuple(_queue(row) for row in queues),
            tuple(_binding(row) for row in bindings if row["destination_type"] == "queue"),
        )

    async def _call(
        self, method: str, path: str, body: Definitions | None = None, *, fine: Collection[int] = ()
    ) -> Any:
        try:
            answer = await self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise TransportUnavailable(self.name, str(error) or type(error).__name__) from error
        if answer.status_code in (401, 403):
            raise ConfigError(f"{self.name} refuses this user: give it the tag `administrator` or `policymaker`")
        if answer.status_code == 404:
            raise ConfigError(f"{self.name} has no virtual host {self._vhost!r}: make it with rabbitmqctl add_vhost")
        if answer.is_error and answer.status_code not in fine:
            raise TransportUnavailable(self.name, f"HTTP {answer.status_code}: {answer.text[:300]}")
        return answer.json() if answer.content else None


Declaration = DeclaredExchange | DeclaredQueue | DeclaredBinding


def _missing(wanted: Declared, live: Declared) -> Iterator[Declaration]:
    exchanges, queues = {exchange.name for exchange in live.exchanges}, {queue.name for queue in live.queues}
    bindings = {_place(binding) for binding in live.bindings}
    yield from (exchange for exchange in wanted.exchanges if exchange.name not in exchanges)
    yield from (queue for queue in wanted.queues if queue.name not in queues)
    yield from (binding for binding in wanted.bindings if _place(binding) not in bindings)


def _clashes(wanted: Declared, live: Declared) -> Iterator[str]:
    exchanges = {exchange.name: exchange for exchange in live.exchanges}
    queues = {queue.name: queue for queue in live.queues}
    for exchange in wanted.exchanges:
        if exchange.name in exchanges:
            yield from _differences(_name(exchange), exchange, exchanges[exchange.name])
    for queue in wanted.queues:
        if queue.name in queues:
            yield from _differences(_name(queue), queue, queues[queue.name])


def _differences(name: str, wanted: Struct, found: Struct) -> Iterator[str]:
    for field in wanted.__struct_fields__:
        ours, theirs = getattr(wanted, field), getattr(found, field)
        if field != "arguments" and ours != theirs:
            yield f"{name}: {field.replace('_', '-')} is {theirs!r}, wanted {ours!r}"
        elif field == "arguments":
            ours, theirs = _plain(ours), _plain(theirs)
            for key in sorted({*ours, *theirs}):
                if ours.get(key) != theirs.get(key):
                    yield f"{name}: {key} is {theirs.get(key)!r}, wanted {ours.get(key)!r}"


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """A classic queue may say so, or not."""
    return {key: value for key, value in arguments.items() if (key, value) != ("x-queue-type", "classic")}


def _extra(wanted: Declared, live: Declared) -> Iterator[DeclaredBinding]:
    """Bindings that nobody asked for, and through which messages come all the same."""
    queues, bindings = {queue.name for queue in wanted.queues}, {_place(binding) for binding in wanted.bindings}
    for binding in live.bindings:
        if binding.queue in queues and binding.exchange and _place(binding) not in bindings:
            yield binding


def _place(binding: DeclaredBinding) -> tuple[str, str, str, str]:
    return binding.exchange, binding.queue, binding.key, repr(sorted(binding.arguments.items()))


def _name(part: Declaration) -> str:
    match part:
        case DeclaredExchange():
            return f"exchange {part.name}"
        case DeclaredQueue():
            return f"queue {part.name}"
    return f"binding {part.exchange} --{part.key}--> {part.queue}"


def _definitions(parts: Sequence[Declaration], vhost: str) -> Definitions:
    return {
        "exchanges": [exchange_entry(part, vhost) for part in parts if isinstance(part, DeclaredExchange)],
        "queues": [queue_entry(part, vhost) for part in parts if isinstance(part, DeclaredQueue)],
        "bindings": [binding_entry(part, vhost) for part in parts if isinstance(part, DeclaredBinding)],
    }


def _exchange(row: Definitions) -> DeclaredExchange:
    return DeclaredExchange(
        row["name"], row["type"], row["durable"], row["auto_delete"], row["internal"], row["arguments"]
    )


def _queue(row: Definitions) -> DeclaredQueue:
    return DeclaredQueue(row["name"], row["durable"], row["auto_delete"], row["arguments"])


def _binding(row: Definitions) -> DeclaredBinding:
    return DeclaredBinding(row["source"], row["destination"], row["routing_key"], row["arguments"])


def _quoted(name: str) -> str:
    return quote(name, safe="")
