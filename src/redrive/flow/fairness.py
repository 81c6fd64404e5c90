"""Pure: which tenant is next. The rule that transports/redis/lua/fetch.lua carries out on the server.

Those that wait stand in a ring. A turn is up to `in_a_row` messages of one tenant; after it, the tenant stands behind
everybody who waits. So whoever waited for most turns is next, which is what `priority_of` says: the priority of a
tenant rises with each round that passes it by. A tenant of weight 2 is charged half a turn for a turn, so it gets
twice as many.
"""

from __future__ import annotations

from collections.abc import Callable

BASE_PRIORITY, MOST_URGENT = 5, 1
Pop = Callable[[str, int], tuple[int, bool]]


def priority_of(
    rounds_without_processing: int, base: int = BASE_PRIORITY, increment: int = 1, most_urgent: int = MOST_URGENT
) -> int:
    """5 for who was just served, 1 (the most urgent) for who was passed by four times or more; or as it is set."""
    return max(most_urgent, base - rounds_without_processing * increment)


class Rotation:
    """The ring and where it stands. The caller knows what a tenant has to do: it calls `join`, and `serve` asks it."""

    def __init__(self, in_a_row: int = 3, weights: dict[str, float] | None = None) -> None:
        self.in_a_row = in_a_row
        self.weights = weights or {}
        self.turn = 0
        self.streak = 0
        self.last: str | None = None
        self._pass = 0.0
        self._passes: dict[str, float] = {}  # of everybody who was ever served
        self._ring: dict[str, tuple[float, int, str]] = {}  # pass, turn of arrival, tenant

    @property
    def waiting(self) -> set[str]:
        return set(self._ring)

    def rounds_without(self, tenant: str) -> int:
        """How many turns others had since it came or was served."""
        return self.turn - self._ring[tenant][1] if tenant in self._ring else 0

    def join(self, tenant: str) -> None:
        """It has something to do. Behind those that wait, unless it waits already."""
        if tenant not in self._ring:
            start = self._pass + 1 / self._weight(tenant)
            self._ring[tenant] = max(start, self._passes.get(tenant, 0.0)), self.turn, tenant

    def serve(self, limit: int, pop: Pop) -> None:
        """Turn by turn until so many are taken. `pop(tenant, number)` takes them; how many it did, and has it more?"""
        taken = 0
        while taken < limit and self._ring:
            taken += self._serve_one(limit - taken, pop)

    def _serve_one(self, left: int, pop: Pop) -> int:
        tenant, allowed, charge = self._choose(left)
        score = self._ring[tenant][0]
        taken, has_more = pop(tenant, allowed)
        self.streak = self.streak + taken if tenant == self.last else taken
        self.last = tenant
        if charge == 1:
            self._pass = max(self._pass, score)
        if has_more and taken == left and taken < self.in_a_row and self.streak < self.in_a_row:
            return taken  # the limit cut the turn short: it goes on
        self.turn += 1
        self._passes[tenant] = score + charge / self._weight(tenant)
        del self._ring[tenant]
        if has_more:
            self._ring[tenant] = self._passes[tenant], self.turn, tenant
        return taken

    def _choose(self, left: int) -> tuple[str, int, float]:
        """Who is next, how many it may have, and the part of a turn that it is charged."""
        first, *others = sorted(self._ring, key=lambda tenant: self._ring[tenant])
        if not others:
            return first, left, 1
        if first == self.last and self.streak >= self.in_a_row:
            # with weights, one message is enough to let another one in between
            return (others[0], 1, 1 / self.in_a_row) if self.weights else (others[0], min(left, self.in_a_row), 1)
        allowed = self.in_a_row - self.streak if first == self.last else self.in_a_row
        return first, min(left, allowed), 1

    def _weight(self, tenant: str) -> float:
        return self.weights.get(tenant, 1.0)
