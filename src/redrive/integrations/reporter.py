"""What an integration holds: it reports deaths and successes, and never lets its worker wait for a store."""

from __future__ import annotations

import logging
import os
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

from redrive.clock import Clock, SystemClock
from redrive.errors import ConfigError
from redrive.flow.lineage import carried, claim_of
from redrive.integrations.host import Host, started
from redrive.integrations.reports import Died, Noted, Report, Succeeded, packed
from redrive.integrations.spool import Spool, default_directory
from redrive.model import Letter, Message, letter_id
from redrive.registry import check_url

log = logging.getLogger("redrive")


class Reporter:
    """Reports of one worker. Safe in threads and after a fork; nothing it does raises into the worker.

    store    the URL of the store that letters go to
    spool    the directory in which they wait for it; by default one for this user and store
    fsync    a letter survives a crash of the machine, too, before its message is acknowledged; of one that was
             acknowledged before it ran, soon after
    apart    the courier is a process of its own: where a worker forks for each task, a thread of ours could hold a lock
             of a library that the child waits for
    """

    def __init__(
        self,
        store: str,
        *,
        spool: str | Path | None = None,
        fsync: bool = True,
        apart: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if store.startswith("memory:"):
            raise ConfigError("memory:// is seen by this process alone: letters need a store that others can open")
        check_url("store", store)
        self._url = store
        directory = default_directory(store) if spool is None else Path(spool)
        try:
            self._spool = Spool(directory, fsync=fsync)
        except OSError as error:
            raise ConfigError(
                f"letters cannot wait in {directory}: {error}. Name another directory (spool=…)"
            ) from None
        self._clock = clock or SystemClock()
        self._apart = apart
        self.delivers = True  # False: only write, because another process delivers
        self._host: Host | None = None
        self._pid = 0
        self._starting = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    @property
    def directory(self) -> Path:
        """Where reports wait."""
        return self._spool.directory

    def start(self) -> None:
        """Begin to deliver what an earlier worker has left. The first report does so, too."""
        if self._pid == os.getpid():
            return
        with self._starting:
            if self._pid != os.getpid():
                self._host, self._pid = started(self.directory, self._url, self._apart), os.getpid()

    def died(self, letter: Letter, *, waits: bool = True) -> bool:
        """Keep that letter; whether it is on disk. If not, the log says why, with what died.

        waits   for the disk, because its message is acknowledged when this returns. If it was before, a crash of the
                machine loses what was running anyway, and the worker need not wait
        """
        what = f"letter {letter.id} of {letter.message.id!r} from {letter.message.source!r}"
        return self._report(Died(letter), what, waits=waits)

    def succeeded(self, message: Message, *, waits: bool = True, bare: bool = False) -> bool:
        """Resolve the letter that this message was sent back from, if it proves that; whether it says so.

        bare   the worker's own encoder left no place in it for a proof
        """
        origin = claim_of(message)
        if origin is None:
            return False
        report = Succeeded(
            origin.letter,
            self._clock.now(),
            origin.replay,
            source=message.source,
            message=message.id,
            headers=carried(message),
            bare=bare,
        )
        return self._report(report, f"the success of letter {origin.letter}", waits=waits)

    def succeeded_by_hand(self, message: Message) -> bool:
        """Resolve the letter of a message that died, and that somebody put back with the worker's own tools, if the
        letter has the same body; whether that is on disk."""
        letter = letter_id(message.source, message.id)
        digest = sha256(message.body).hexdigest()
        report = Succeeded(letter, self._clock.now(), source=message.source, message=message.id, digest=digest)
        return self._report(report, f"the success of letter {letter}", waits=True)

    def noted(self, kind: str, id: str, body: dict[str, Any]) -> bool:
        """Let the store keep that as a document; whether it is on disk."""
        return self._report(Noted(kind, id, body), f"the note {kind}/{id}", waits=False)

    def close(self, timeout: float = 5.0) -> None:
        """Deliver what waits, for at most so many seconds. What is left is delivered by the next worker."""
        if self._host is not None and self._pid == os.getpid():
            self._host.end(timeout)
        self._host, self._pid = None, 0

    def _report(self, report: Report, what: str, *, waits: bool) -> bool:
        try:
            self._spool.put(packed(report), waits=waits)
        except Exception:
            log.exception("%s could not be written to %s, and is not kept", what, self.directory)
            return False
        if not self.delivers:
            return True
        try:
            self.start()
            if self._host is not None:
                self._host.wake()
        except Exception:
            log.exception("%s waits in %s: nothing delivers it now", what, self.directory)
        return True

    def _forked(self) -> None:
        """The thread of the courier stays with the parent; so does its lock, which may be held just now."""
        self._starting = threading.Lock()
        self._host, self._pid = None, 0
