"""What a replay does next, for all guards, tallies and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from redrive.flow.guard import Baseline, Fates, Guard, crosses
from redrive.flow.order import Fate, Order, Place
from redrive.flow.replay_document import PausedBy, Replay, ReplayState
from redrive.flow.steps import Advance, Await, End, Pause, Rest, Send, Supply, next_act
from redrive.forensics.query import Query
from redrive.testing.builders import make_letter, make_message

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COUNT = st.integers(0, 10_000)
GUARDS = st.builds(
    Guard,
    canary=st.integers(1, 500),
    ramp=st.lists(st.integers(1, 100), unique=True, max_size=5).map(lambda ramp: tuple(sorted(map(float, ramp)))),
    share=st.floats(0, 1),
)
FATES = st.builds(Fates, selected=COUNT, sent=COUNT, resolved=COUNT, failed=COUNT, skipped=COUNT, untold=COUNT)


def _replay(total: int, guard: Guard | None, step: int = 0) -> Replay:
    running = ReplayState.RUNNING
    made = Replay(
        id="r", query=Query(), actor="a", created_at=NOW, state=running, total=total, guard=guard, heard_at=NOW
    )
    return replace(made, step=min(step, len(made.steps) - 1))


@given(GUARDS, st.integers(0, 1_000_000))
def test_steps_rise_and_the_last_is_everything(guard: Guard, total: int) -> None:
    steps = guard.checked().steps(total)
    assert list(steps) == sorted(set(steps))
    assert steps[-1] == total
    assert steps[0] <= max(guard.canary, total)


@given(GUARDS, FATES, st.integers(0, 10_000), st.integers(0, 9), st.sampled_from(Supply), st.integers(0, 2000))
def test_there_is_always_something_to_do_and_no_step_is_overdrawn(
    guard: Guard, fates: Fates, total: int, step: int, supply: Supply, seconds: int
) -> None:
    replay = _replay(total, guard, step)
    act = next_act(replay, fates, supply, NOW + timedelta(seconds=seconds))
    is_last = replay.step == len(replay.steps) - 1
    if isinstance(act, Send):
        assert supply is Supply.MORE
        assert act.most > 0
        assert is_last or fates.gone + act.most <= replay.steps[replay.step]
    elif isinstance(act, Advance):
        assert act.step == replay.step + 1 < len(replay.steps)
        assert fates.outstanding <= replay.base.excused
    elif isinstance(act, End):
        assert supply is Supply.NONE
    elif isinstance(act, Pause) and act.by is PausedBy.DEADLINE:
        assert timedelta(seconds=seconds) >= replay.deadline
    else:
        assert isinstance(act, Await | Rest | Pause)


@given(GUARDS, FATES, st.integers(1, 10_000))
def test_no_death_no_pause_and_more_successes_never_make_it_worse(guard: Guard, fates: Fates, size: int) -> None:
    base = Baseline()
    if not fates.failed:
        assert not crosses(guard, size, fates, base)
    better = Fates(resolved=fates.resolved + 1, failed=fates.failed)
    assert crosses(guard, size, fates, base) >= crosses(guard, size, better, base)


@given(st.lists(st.integers(0, 4), max_size=60), st.data())
def test_of_each_key_one_letter_is_on_its_way_and_they_go_in_order(keys: list[int], data: st.DataObject) -> None:
    order = Order()
    letters = [make_letter(make_message(id=f"m{n}", key=b"%d" % key)) for n, key in enumerate(keys)]
    by_id, went = {letter.id: letter for letter in letters}, list[str]()
    flying: set[str] = set()
    skipped: set[str] = set()
    queue = list(letters)
    while queue or flying or order.has_ready:
        for id in order.take_ready(10):
            assert order.place(by_id[id]) is Place.GO
            flying.add(id)
            went.append(id)
        for letter in [queue.pop(0) for _ in range(min(len(queue), 7))]:
            place = order.place(letter)
            if place is Place.GO:
                flying.add(letter.id)
                went.append(letter.id)
            elif place is Place.SKIP:
                skipped.add(letter.id)
        assert len({by_id[id].message.key for id in flying}) == len(flying)
        for id in sorted(flying):
            fate = data.draw(st.sampled_from([Fate.DONE, Fate.DIED, Fate.DONE]))
            skipped |= {late for late, _ in order.learn([(id, fate, None)])}
            flying.discard(id)
    assert not order.is_waiting
    assert sorted([*went, *skipped]) == sorted(by_id)
    places = {letter.id: place for place, letter in enumerate(letters)}
    for key in set(keys):
        line = [places[id] for id in went if by_id[id].message.key == b"%d" % key]
        assert line == sorted(line)
