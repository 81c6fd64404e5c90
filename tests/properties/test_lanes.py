"""Order by key, for every interleaving: a transport's backlog and a consumer's lanes, played against each other."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct

from redrive.flow.lanes import Backlog, Lanes
from redrive.model import Bury, Done, Outcome, Reason, Release, Retry

LANES = ("a", "b", None)
DONE, RELEASE = Done(), Release()
OUTCOMES: tuple[Outcome, ...] = (DONE, Retry(timedelta(seconds=3)), Bury(Reason.ATTEMPTS), RELEASE)


class Item(Struct, frozen=True, eq=False):
    """One delivery of a message: after its partition was lost and came back, the same message is another item."""

    lane: str | None
    number: int  # in its lane

    @property
    def message(self) -> tuple[str | None, int]:
        return self.lane, self.number


class Order(RuleBasedStateMachine):
    """A worker of one transport, step by step, in any order of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.backlog: Backlog[Item] = Backlog(lane=lambda item: item.lane, order=lambda item: item.number)
        self.lanes: Lanes[Item] = Lanes()
        self.sent: dict[str | None, int] = dict.fromkeys(LANES, 0)
        self.live: dict[tuple[str | None, int], Item] = {}  # unfinished messages, as they are delivered now
        self.finished: list[tuple[str | None, int]] = []
        self.put_back: set[Item] = set()  # and not finished since
        self.hands: set[Item] = set()  # received and not begun
        self.running: list[Item] = []
        self.decisions: list[tuple[Item, Outcome]] = []
        self.batch: list[tuple[Item, Outcome]] | None = None  # being settled
        for lane in LANES:
            self.arrive(lane, 3)

    # -- steps ---------------------------------------------------------------------------------------------------

    @rule(lane=st.sampled_from(LANES), count=st.integers(1, 4))
    def arrive(self, lane: str | None, count: int) -> None:
        for _ in range(count):
            item = Item(lane, self.sent[lane])
            self.sent[lane] += 1
            self.live[item.message] = item
            self.backlog.ready.append(item)

    @rule(limit=st.integers(1, 6), seconds=st.sampled_from([0.0, 1.0, 5.0]))
    def fetch(self, limit: int, seconds: float) -> None:
        self.now += seconds
        taken = self.backlog.take(limit, self.now)
        assert len(taken) <= limit
        for item in taken:
            assert self.is_ours(item), "a lost message was handed out"
        self.hands.update(taken)
        self.lanes.add(taken)

    @rule(times=st.integers(1, 4))
    def begin(self, times: int) -> None:
        for _ in range(times):
            self.begin_one()

    def begin_one(self) -> None:
        item = self.lanes.next()
        while item is not None and not self.is_ours(item):
            self.hands.discard(item)
            item = self.lanes.done(item)
        if item is not None:
            self.run(item)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 100), outcome=st.sampled_from(OUTCOMES), is_plain=st.booleans())
    def decide(self, which: int, outcome: Outcome, is_plain: bool) -> None:
        """is_plain: a success that no store has to hear of."""
        item = self.running.pop(which % len(self.running))
        self.decisions.append((item, outcome))
        if outcome is not DONE or not is_plain:
            self.lanes.block(item, outcome)
            return
        following = self.lanes.done(item)
        while following is not None and not self.is_ours(following):
            self.hands.discard(following)
            following = self.lanes.done(following)
        if following is not None:
            self.run(following)

    @precondition(lambda self: self.batch is None and self.decisions)
    @rule()
    def begin_to_settle(self) -> None:
        self.batch, self.decisions = self.decisions, []
        self.batch += [(item, RELEASE) for item in self.lanes.held_up()]

    @precondition(lambda self: self.batch is not None)
    @rule(store_is_up=st.booleans(), meanwhile=st.integers(0, 4))
    def settle(self, store_is_up: bool, meanwhile: int) -> None:
        """Without the store, what is to be buried is given back."""
        assert self.batch is not None
        kept_back = [item for item, outcome in self.batch if isinstance(outcome, Bury) and not store_is_up]
        for item, outcome in self.batch:
            self.carry_out(item, RELEASE if item in kept_back else outcome)
        self.batch = None
        self.fetch(meanwhile, 0.0)
        given_back = self.lanes.settled(kept_back)
        self.decisions += [(item, RELEASE) for item in given_back]

    @rule(lane=st.sampled_from(LANES))
    def lose(self, lane: str | None) -> None:
        """Its partition moves away, and back: what is not finished comes again."""
        lost = [item for item in self.live.values() if item.lane == lane]
        self.backlog.drop(lambda item: item.lane == lane)
        self.put_back.difference_update(lost)
        for item in lost:
            again = Item(lane, item.number)
            self.live[again.message] = again
            self.backlog.ready.append(again)

    # -- what a worker does in them ------------------------------------------------------------------------------

    def is_ours(self, item: Item) -> bool:
        return self.live.get(item.message) is item

    def run(self, item: Item) -> None:
        self.hands.discard(item)
        if item.lane is not None:
            assert all(other.lane != item.lane for other in self.running), "two of one lane at once"
            done = {other.message for other, outcome in self.unsettled() if outcome is DONE and self.is_ours(other)}
            for number in range(item.number):
                assert (item.lane, number) not in self.live or (item.lane, number) in done, "out of order"
        self.running.append(item)

    def unsettled(self) -> list[tuple[Item, Outcome]]:
        return [*self.decisions, *(self.batch or ())]

    def carry_out(self, item: Item, outcome: Outcome) -> None:
        self.hands.discard(item)
        if not self.is_ours(item):
            return
        if isinstance(outcome, Done | Bury):
            self.put_back.discard(item)
            del self.live[item.message]
            self.finished.append(item.message)
            self.backlog.done([item])
        else:
            self.put_back.add(item)
            after = outcome.after if isinstance(outcome, Retry) else outcome.pause
            self.backlog.put_back(item, self.now + after.total_seconds())

    # -- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_finished_twice(self) -> None:
        assert len(self.finished) == len(set(self.finished))

    @invariant()
    def each_lane_is_finished_in_order(self) -> None:
        for lane in ("a", "b"):
            mine = [number for name, number in self.finished if name == lane]
            assert mine == sorted(mine)

    @invariant()
    def only_what_is_behind_another_of_its_lane_waits(self) -> None:
        """Whatever is neither in somebody's hands nor takeable has one that was put back before it in its lane."""
        blocked = {item.lane for item in self.put_back if item.lane is not None}
        for item in self.backlog.waiting(self.now):
            assert item.lane in blocked or item in self.put_back
        busy = {item.lane for item in self.running} | {item.lane for item, _ in self.unsettled()}
        begun = self.lanes.busy
        assert begun <= len(busy), "a lane is taken by nobody"

    def teardown(self) -> None:
        """From now on everything works: nothing was lost."""
        for _ in range(3 * sum(self.sent.values()) + 10):
            self.fetch(1000, 5.0)
            self.begin(1000)
            while self.running:
                self.decide(0, DONE, True)
            if self.batch is None and self.decisions:
                self.begin_to_settle()
            if self.batch is not None:
                self.settle(True, 0)
        assert sorted(self.finished, key=str) == sorted(
            ((lane, number) for lane, count in self.sent.items() for number in range(count)), key=str
        )
        super().teardown()


Order.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestOrder = Order.TestCase
