"""Groups of what one lease holds, as the functions of the queue take them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from redrive.limits import Limits
from redrive.model import Category, Done, Release, Retry
from redrive.transports.base import Delivery, Settlement
from redrive.transports.postgresql.rows import history

Held = tuple[int, bytes]
"""The token of a delivery: of its lease, and its id."""


class Slices(NamedTuple):
    """Ids side by side by lease: of the first lease up to its end, then of the next."""

    ids: list[bytes]
    tokens: list[int]
    ends: list[int]


def slices(held: Iterable[Held]) -> Slices:
    """Those of one lease together."""
    by_token: dict[int, list[bytes]] = defaultdict(list)
    for token, id in held:
        by_token[token].append(id)
    ids: list[bytes] = []
    ends: list[int] = []
    for some in by_token.values():
        ids += some
        ends.append(len(ids))
    return Slices(ids, list(by_token), ends)


def by_source(deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    found: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        found[delivery.message.source].append(delivery)
    return found


def decided(settlements: Sequence[Settlement], limits: Limits) -> list[Any]:
    """The settlements as `queue_settle` takes them, after the source."""
    done = slices(item.delivery.token for item in settlements if isinstance(item.outcome, Done))
    back = sorted(
        (item.delivery.token[1], item.delivery.token[0], *_going_back(item))
        for item in settlements
        if not isinstance(item.outcome, Done)
    )
    columns = [list(column) for column in zip(*back, strict=True)] if back else [[], [], [], [], []]
    rate = limits.rate
    return [*done, *columns, _throttled(settlements, limits), rate is not None and rate.to_the_end]


def _going_back(item: Settlement) -> tuple[int, bool, bytes | None]:
    """Microseconds to wait, whether its attempt is taken off, and its failures."""
    outcome = item.outcome
    assert isinstance(outcome, Retry | Release)
    if isinstance(outcome, Retry):
        return micros(outcome.after), False, history(item)
    return micros(outcome.pause), True, None


def micros(span: timedelta) -> int:
    """A duration in microseconds."""
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds


def _throttled(settlements: Iterable[Settlement], limits: Limits) -> int:
    """The span of a rate that has to give way, in microseconds; 0 if none has."""
    rate = limits.rate
    if rate is None or not rate.adaptive:
        return 0
    failures = (item.failure for item in settlements)
    is_throttled = any(failure is not None and failure.category is Category.RESOURCE for failure in failures)
    return micros(rate.per) if is_throttled else 0
