"""Jobs that run side by side, each when those it waits for are through."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import TopologicalSorter
from queue import Empty, SimpleQueue

from tests.servers.child import Keeper
from tests.servers.steps import STEPS

WAKES_AFTER = 0.2  # seconds


@dataclass(frozen=True)
class Job:
    """Something to do once, and the names of the jobs that have to be through before."""

    name: str
    run: Callable[[], None]
    after: frozenset[str] = frozenset()


class _Running:
    """The threads that work now, and what they tell when they end."""

    def __init__(self) -> None:
        self._threads: dict[str, Keeper] = {}
        self._ended: SimpleQueue[tuple[str, BaseException | None]] = SimpleQueue()

    def begin(self, job: Job) -> None:
        self._threads[job.name] = Keeper(target=self._work, args=(job,), name=job.name)
        self._threads[job.name].start()

    def _work(self, job: Job) -> None:
        try:
            job.run()
        except BaseException as error:
            self._ended.put((job.name, error))
        else:
            self._ended.put((job.name, None))

    def next_ended(self) -> str:
        """The name of the next job that is through; raises what it raised."""
        name, error = self._wait()
        self._threads.pop(name).join()
        if error is not None:
            raise error
        return name

    def _wait(self) -> tuple[str, BaseException | None]:
        """The kernel may give Ctrl-C to a thread that works; Python acts on it when this one, the main one, wakes."""
        while True:
            with suppress(Empty):
                return self._ended.get(timeout=WAKES_AFTER)

    def end(self) -> None:
        """Ends what runs, and waits until it has ended; what it says then is no news."""
        STEPS.end()
        for thread in self._threads.values():
            thread.join()
        STEPS.reopen()


def run_side_by_side(jobs: Sequence[Job]) -> None:
    """All of them. The first that fails, and Ctrl-C, end the others; nothing runs any more when this returns."""
    known = {job.name: job for job in jobs}
    order = TopologicalSorter({job.name: job.after & known.keys() for job in jobs})
    order.prepare()
    running = _Running()
    try:
        while order.is_active():
            for name in order.get_ready():
                running.begin(known[name])
            order.done(running.next_ended())
    finally:
        running.end()
