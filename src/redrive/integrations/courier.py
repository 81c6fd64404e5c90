"""Brings the reports of a spool to a store: a report is removed when the store has it, not before.

`python -m redrive.integrations.courier DIRECTORY` is a process that does nothing else. It finds the URL of the store in
REDRIVE_STORE, so that no password stands in a list of processes, and ends when its standard input does, once nothing
waits any more: whoever started it holds the other end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from redrive.clock import Clock, Pause, SystemClock
from redrive.collect.joining import join
from redrive.errors import Unavailable
from redrive.flow.lineage import LETTER, bare, believed, lineage
from redrive.flow.signing import load_keys, use_key
from redrive.forensics.query import Query
from redrive.integrations.reports import Died, Noted, Report, Succeeded, unpacked
from redrive.integrations.spool import Spool
from redrive.model import UNRESOLVED, Letter, LetterId, State
from redrive.proof import ring
from redrive.registry import open_store
from redrive.stores.base import Entry, EntryStatus, Store
from redrive.stores.recording import record_each
from redrive.untrusted import UNREADABLE

log = logging.getLogger("redrive")
_BATCH = 500
_LARGEST = 16 << 20  # bytes of a batch, but for one report that is larger
_LISTED = 20_000  # reports that are listed at once: a long directory is not read anew for each batch
_LOOK = 1.0  # seconds between looks into a directory that others write into
_AWAY = (State.RETRYING, State.REPLAYING, State.SENT)
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


class Courier:
    """Empties one spool into one store. Delivering twice changes nothing.

    opens   opens the store; asked again while that fails, because a store may be away when its worker starts
    """

    def __init__(self, spool: Spool, opens: Callable[[], Store], clock: Clock | None = None) -> None:
        self._spool = spool
        self._opens = opens
        use_key(os.environ.get("REDRIVE_LINEAGE_KEY", ""))  # of a worker's settings Redrive knows nothing else
        self._opened: Store | None = None
        self._clock = clock or SystemClock()
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        self._pause = Pause(_SHORTEST_PAUSE, _LONGEST_PAUSE)
        self._is_down = False
        self._safe: set[Path] = set()  # those that wait, and are known to be on disk

    def wake(self) -> None:
        """There is something to deliver."""
        self._wake.set()

    def end(self) -> None:
        """Deliver what waits, once, and end: what a store does not take now stays for the next courier."""
        self._ending.set()
        self._wake.set()

    async def run(self) -> None:
        """Deliver until `end`."""
        try:
            while not self._ending.is_set():
                if self._spool.take():
                    await self._deliver_all()
                await self._rest()
            if self._spool.take():
                await self._deliver_all()
        finally:
            self._spool.release()
            if self._opened is not None:
                await self._opened.aclose()

    @property
    def _store(self) -> Store:
        """The store, which is opened when something is to be delivered. Raises what its opening raises."""
        if self._opened is None:
            self._opened = self._opens()
        return self._opened

    async def _deliver_all(self) -> None:
        while files := await asyncio.to_thread(self._spool.waiting, _LISTED):
            for batch in batches(files):
                if not await self._deliver_or_wait(batch):
                    await self._keep_safe(files)
                    return
                self._note_up()

    async def _keep_safe(self, files: Sequence[Path]) -> None:
        """What has to wait survives a crash of the machine, also if its worker did not wait for the disk."""
        new = [file for file in files if file not in self._safe]
        try:
            await asyncio.to_thread(self._spool.sync, new)
        except OSError:
            log.exception("letters wait in %s, and may not survive a crash of this machine", self._spool.directory)
        self._safe = set(files)

    async def _deliver_or_wait(self, files: Sequence[Path]) -> bool:
        """Whether all of these were delivered. What cannot be delivered now stays, and holds up none beside it."""
        try:
            await self._deliver(files)
        except Unavailable as error:
            self._note_down(error)
            return False
        except Exception as error:  # of a store that fails in a way of its own, or at something in one report
            if len(files) == 1 or self._opened is None:
                self._note_down(error)
                return False
            return all([await self._deliver_or_wait([file]) for file in files])
        return True

    async def _deliver(self, files: Sequence[Path]) -> None:
        """Bring these to the store, in their order."""
        await load_keys(self._store, self._clock.now())  # what a worker reports is what messages say
        read = [(file, report) for file in files if (report := self._read(file)) is not None]
        for kind, some in groupby(read, key=lambda pair: type(pair[1])):
            pairs = list(some)
            if kind is Died:
                await self._bury([(file, report) for file, report in pairs if isinstance(report, Died)])
            elif kind is Succeeded:
                await self._resolve([report for _, report in pairs if isinstance(report, Succeeded)])
            else:
                await self._keep([report for _, report in pairs if isinstance(report, Noted)])
            self._spool.remove([file for file, _ in pairs])

    async def _bury(self, died: Sequence[tuple[Path, Died]]) -> None:
        found = [_as_proven(report.letter) for _, report in died]
        joined = await join(self._store.letters, found, self._clock.now())
        if joined.entries:
            await self._store.ledger.mark(joined.entries)
        letters = [replace(letter, message=bare(letter.message)) for letter in joined.in_order]
        refused = await record_each(self._store.letters, letters)
        for (file, _), letter in zip(died, joined.letters, strict=True):
            if (error := refused.get(letter.id)) is not None:
                place = self._spool.refuse(file)
                log.error("the store refuses letter %s: it stays in %s", letter.id, place, exc_info=error)

    async def _resolve(self, succeeded: Sequence[Succeeded]) -> None:
        now = self._clock.now()
        proven = [report for report in succeeded if _is_proven(report)]
        replayed = [
            Entry(report.replay, report.letter, EntryStatus.RESOLVED, report.at)
            for report in proven
            if report.replay is not None
        ]
        if replayed:
            await self._store.ledger.mark(replayed)
        ids = {report.letter for report in proven}
        await self._store.letters.move(list(ids), expect=UNRESOLVED, to=State.RESOLVED, now=now)
        unsigned = {report.letter for report in succeeded if report.bare} - ids
        await self._store.letters.move(list(unsigned), expect=_AWAY, to=State.RESOLVED, now=now)
        by_hand = await self._same({report.letter: report.digest for report in succeeded if report.digest})
        await self._store.letters.move(by_hand, expect=UNRESOLVED, to=State.RESOLVED, now=now)

    async def _same(self, digests: Mapping[LetterId, str]) -> list[LetterId]:
        """Those of the letters whose body has that digest."""
        if not digests:
            return []
        found = (await self._store.letters.search(Query(ids=tuple(digests)), limit=len(digests))).letters
        return [letter.id for letter in found if sha256(letter.message.body).hexdigest() == digests[letter.id]]

    async def _keep(self, noted: Sequence[Noted]) -> None:
        last = {(report.kind, report.id): report.body for report in noted}
        for (kind, id), body in last.items():
            await self._store.documents.put(kind, id, body)

    def _read(self, file: Path) -> Report | None:
        try:
            return unpacked(file.read_bytes())
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            log.error("%s is no report of ours: it stays in %s", file, self._spool.refuse(file), exc_info=error)
            return None

    async def _rest(self) -> None:
        """Until something is to be delivered; a store that is away is left alone for a pause that grows."""
        if self._is_down:
            await self._clock.wait(self._ending, self._pause.next())
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), _LOOK)
        self._wake.clear()

    def _note_down(self, error: Exception) -> None:
        if not self._is_down:
            told = None if isinstance(error, Unavailable) else error
            log.warning("letters wait in %s: %s", self._spool.directory, error, exc_info=told)
        self._is_down = True

    def _note_up(self) -> None:
        if self._is_down:
            log.warning("the store is back: letters that waited in %s are delivered", self._spool.directory)
        self._is_down = False
        self._pause.reset()


def _as_proven(letter: Letter) -> Letter:
    """The letter without what only a claim says of it that nothing proves: that it was retried or replayed before."""
    if letter.message.header(LETTER) is None or lineage(letter.message) is not None:
        return letter
    return replace(letter, state=State.PENDING, retries=0)


def _is_proven(report: Succeeded) -> bool:
    """Whether we sent the message back that has succeeded. An older version reported no more than what it said."""
    if not report.headers:
        return not report.digest and ring().believes("")
    origin = believed(report.headers, report.letter, report.source, report.message)
    return origin is not None and origin.replay == report.replay


def batches(files: Sequence[Path]) -> Iterator[Sequence[Path]]:
    """The files in batches that a store takes at once and that fit into memory."""
    batch: list[Path] = []
    size = 0
    for file in files:
        with suppress(FileNotFoundError):  # another courier of this process was first
            size += file.stat().st_size
            batch.append(file)
        if len(batch) >= _BATCH or size >= _LARGEST:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def deliver(directory: Path, url: str, end: asyncio.Event) -> None:
    """Run a courier until `end` is set."""
    courier = Courier(Spool(directory), lambda: open_store(url))
    running = asyncio.create_task(courier.run())
    ending = asyncio.create_task(end.wait())
    try:
        await asyncio.wait([running, ending], return_when=asyncio.FIRST_COMPLETED)
        courier.end()
        await running
    finally:
        ending.cancel()


async def _main(directory: Path, url: str) -> None:
    end, loop = asyncio.Event(), asyncio.get_running_loop()

    def until_stdin_ends() -> None:
        sys.stdin.buffer.read()
        with suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(end.set)

    threading.Thread(target=until_stdin_ends, daemon=True).start()
    await deliver(directory, url, end)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), os.environ["REDRIVE_STORE"]))
