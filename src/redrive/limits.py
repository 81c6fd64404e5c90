"""Limits: how fast a source may be handled, and how its tenants share it. Not every transport can keep them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

from msgspec import Struct

from redrive.config.durations import Duration
from redrive.errors import ConfigError
from redrive.policy import positive

_EQUAL: Mapping[str, float] = MappingProxyType({})


class Rate:
    """At most so many messages within any span of that length, over all workers.

    adaptive    halve it when failures say that a target throttles us (category `resource`), and raise it again by a
                tenth of the full rate for each span without one
    to_the_end  count a message until that span after its attempt ended, and not after it began. So the rate holds at
                the target too, however slow it or a worker is; long attempts make it slower
    """

    __slots__ = ("adaptive", "limit", "per", "to_the_end")

    def __init__(self, limit: int, per: Duration, *, adaptive: bool = False, to_the_end: bool = False) -> None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ConfigError(f"Rate({limit!r}, …): it is a number of messages, 1 or more")
        self.limit = limit
        self.per = positive("per", per)
        if self.per < timedelta(milliseconds=1):
            raise ConfigError(f"Rate(…, {per!r}): it is a millisecond or longer")
        self.adaptive = adaptive
        self.to_the_end = to_the_end

    def __repr__(self) -> str:
        options = "".join(f", {name}=True" for name in ("adaptive", "to_the_end") if getattr(self, name))
        return f"Rate({self.limit}, {self.per}{options})"


class Fair:
    """Tenants take turns, over all workers: while another one waits, none has more than `in_a_row` messages in a row.

    weights         how many turns a tenant gets while one that is not named here gets one
    base_priority   the priority of a tenant that was just served, as it is shown; lower is more urgent
    increment       how much more urgent a tenant is with each round that passes it by
    most_urgent     the priority that it ends at
    """

    __slots__ = ("base_priority", "in_a_row", "increment", "most_urgent", "weights")

    def __init__(
        self,
        *,
        in_a_row: int = 3,
        weights: Mapping[str, float] = _EQUAL,
        base_priority: int = 5,
        increment: int = 1,
        most_urgent: int = 1,
    ) -> None:
        _whole("in_a_row", in_a_row, 1)
        _whole("increment", increment, 0)
        _whole("most_urgent", most_urgent, 0)
        _whole("base_priority", base_priority, most_urgent)
        for tenant, weight in weights.items():
            if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0.001 <= weight <= 1000:
                raise ConfigError(f"Fair(weights=…): {tenant!r} has {weight!r}, and takes a number from 0.001 to 1000")
        self.in_a_row = in_a_row
        self.weights = dict(weights)
        self.base_priority = base_priority
        self.increment = increment
        self.most_urgent = most_urgent

    def __repr__(self) -> str:
        return f"Fair(in_a_row={self.in_a_row}{', weights=…' if self.weights else ''})"


def _whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"Fair({name}={value!r}): it is a whole number, {least} or more")


class Limits(Struct, frozen=True):
    """What one handler asks of its transport."""

    rate: Rate | None = None
    fair: Fair | None = None

    @property
    def asks(self) -> bool:
        """Whether any limit is set."""
        return self.rate is not None or self.fair is not None

    def __str__(self) -> str:
        return " and ".join(f"{name}={value!r}" for name, value in (("rate", self.rate), ("fair", self.fair)) if value)


class TenantMetrics(Struct, frozen=True):
    """How one tenant of a fair source fares now. `name` is empty for messages without a tenant."""

    name: str
    last_processed_at: datetime | None
    rounds_without_processing: int
    current_priority: int
    total_processed: int
    consecutive_batch_count: int
    waiting: int
