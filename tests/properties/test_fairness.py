"""Properties of the rotation: what a tenant can rely on, whatever the others send."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from redrive.flow.fairness import Rotation, priority_of

TENANTS = st.sampled_from("abcde")
STEPS = st.lists(st.tuples(TENANTS, st.integers(1, 12)) | st.integers(1, 9), max_size=40)


class Queues:
    """Tenants with so much to do, and who was served when."""

    def __init__(self, rotation: Rotation) -> None:
        self.rotation = rotation
        self.left: Counter[str] = Counter()
        self.served: list[tuple[str, int, frozenset[str]]] = []  # who, how many, who waited besides

    def add(self, tenant: str, number: int) -> None:
        self.left[tenant] += number
        self.rotation.join(tenant)

    def pop(self, tenant: str, number: int) -> tuple[int, bool]:
        assert self.left[tenant], "a tenant with nothing to do was chosen"
        taken = min(number, self.left[tenant])
        self.left[tenant] -= taken
        self.served.append((tenant, taken, frozenset(self.rotation.waiting - {tenant})))
        return taken, self.left[tenant] > 0

    def run(self, steps: list[tuple[str, int] | int]) -> None:
        for step in steps:
            if isinstance(step, int):
                self.rotation.serve(step, self.pop)
            else:
                self.add(*step)


@given(STEPS, st.integers(1, 4), st.dictionaries(TENANTS, st.floats(0.1, 10)))
def test_nobody_has_more_in_a_row_than_allowed_while_another_waits(
    steps: list[tuple[str, int] | int], in_a_row: int, weights: dict[str, float]
) -> None:
    queues = Queues(Rotation(in_a_row, weights))
    queues.run(steps)
    last, streak = "", 0
    for tenant, taken, others in queues.served:
        before = streak if tenant == last else 0
        streak, last = before + taken, tenant
        if others:
            assert streak <= in_a_row or taken == 0


@given(STEPS)
def test_who_waits_longest_is_next(steps: list[tuple[str, int] | int]) -> None:
    rotation = Rotation()
    queues = Queues(rotation)
    pop = queues.pop

    def checked(tenant: str, number: int) -> tuple[int, bool]:
        goes_on = tenant == rotation.last and rotation.streak < rotation.in_a_row
        priorities = {one: priority_of(rotation.rounds_without(one)) for one in rotation.waiting}
        assert goes_on or priorities[tenant] == min(priorities.values())
        return pop(tenant, number)

    queues.pop = checked  # type: ignore[method-assign]
    queues.run(steps)


@given(STEPS)
def test_nothing_is_left_behind(steps: list[tuple[str, int] | int]) -> None:
    queues = Queues(Rotation())
    queues.run([*steps, 10_000])
    assert not queues.left.total()
    assert not queues.rotation.waiting


def test_a_tenant_of_three_waits_for_three_of_the_flood() -> None:
    queues = Queues(Rotation())
    queues.add("flood", 100_000)
    queues.rotation.serve(100, queues.pop)
    queues.add("small", 3)
    queues.served.clear()
    queues.rotation.serve(6, queues.pop)
    assert [(who, number) for who, number, _ in queues.served] == [("small", 3), ("flood", 3)]


def test_turns_go_by_weight() -> None:
    queues = Queues(Rotation(weights={"gold": 3.0}))
    for tenant in ("gold", "a", "b", "c", "d"):
        queues.add(tenant, 10_000)
    queues.rotation.serve(7_000, queues.pop)
    share = Counter[str]()
    for tenant, number, _ in queues.served:
        share[tenant] += number
    assert abs(share["gold"] - 3_000) < 30
    assert all(abs(share[tenant] - 1_000) < 30 for tenant in "abcd")


def test_priority_rises_from_five_to_one() -> None:
    assert [priority_of(rounds) for rounds in range(7)] == [5, 4, 3, 2, 1, 1, 1]
