"""A directory of reports that wait for their store: one file each, whole or not there at all.

    00001789…-4711-000001.report    waits; the names sort by time
    refused/                        what no store will have: for a person to look at
    lock                            whose courier delivers

Any number of processes write into it; one courier at a time empties it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from pathlib import Path

_SUFFIX = ".report"
_JOURNALING = ("ext4", "xfs")
"""Here creation and rename of a file are in the journal that its fsync writes, so that one fsync is enough."""
_MODE = 0o700  # reports hold bodies of messages
_taken: dict[Path, tuple[int, Spool]] = {}
"""Who delivers from a directory in this process: a lock on a file is of the process, and tells two of its threads the
same."""
_taking = threading.Lock()


class Spool:
    """Reports on disk.

    fsync   a report survives a crash of the machine, and not only of the process
    """

    def __init__(self, directory: Path, *, fsync: bool = True) -> None:
        self.directory = directory
        self._fsync = fsync
        self._numbers = count(1)
        self._lock: int | None = None
        directory.mkdir(mode=_MODE, parents=True, exist_ok=True)

    def put(self, report: bytes, *, waits: bool = True) -> None:
        """Durable when it returns. Raises OSError where the disk takes nothing.

        waits   for the disk. Without, it survives the end of this process, and that of the machine as soon as the
                courier has brought it to its store, or has found that to be away (`sync`)
        """
        name = f"{time.time_ns():020d}-{os.getpid()}-{next(self._numbers):06d}"
        unfinished, finished = self.directory / f".{name}", self.directory / f"{name}{_SUFFIX}"
        try:
            self._write(unfinished, finished, report, fsync=self._fsync and waits)
        except OSError:
            for file in (unfinished, finished):
                file.unlink(missing_ok=True)
            raise
        if self._fsync and waits and not self._syncs_names:
            self._sync_names()

    def sync(self, files: Sequence[Path]) -> None:
        """Make reports survive a crash of the machine that nobody has waited for."""
        for file in files:
            with suppress(FileNotFoundError):
                _sync(file)
        self._sync_names()

    def waiting(self, limit: int) -> list[Path]:
        """The oldest reports, up to so many."""
        names = sorted(entry.name for entry in os.scandir(self.directory) if entry.name.endswith(_SUFFIX))
        return [self.directory / name for name in names[:limit]]

    def remove(self, files: Sequence[Path]) -> None:
        for file in files:
            file.unlink(missing_ok=True)

    def refuse(self, file: Path) -> Path:
        """Put a report away that no store will have; returns where it is now."""
        place = self.directory / "refused"
        place.mkdir(mode=_MODE, exist_ok=True)
        with suppress(FileNotFoundError):  # another courier of this process was first
            file.rename(place / file.name)
        return place / file.name

    def take(self) -> bool:
        """Whether the owner of this object delivers what is here: nobody else does until it is released, or dies."""
        with _taking:
            process, owner = _taken.get(self.directory, (0, self))
            if process == os.getpid() and owner is not self:
                return False
            if self._lock_file():
                _taken[self.directory] = (os.getpid(), self)
                return True
        return False

    def release(self) -> None:
        with _taking:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
                _taken.pop(self.directory, None)

    def _lock_file(self) -> bool:
        if self._lock is None:
            lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of the process: a fork of it does not have it
            except OSError:
                os.close(lock)
                return False
            self._lock = lock
        return True

    def _write(self, unfinished: Path, finished: Path, report: bytes, *, fsync: bool) -> None:
        """Whole or not there, for whoever looks. What a crash of the machine leaves half written was not promised: its
        message is not acknowledged yet, and the courier refuses it."""
        target = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            view = memoryview(report)
            while view:
                view = view[os.write(target, view) :]
            if fsync and not self._syncs_names:
                os.fsync(target)
            unfinished.rename(finished)
            if fsync and self._syncs_names:
                os.fsync(target)
        finally:
            os.close(target)

    @cached_property
    def _syncs_names(self) -> bool:
        """Whether an fsync of a new file makes its name durable as well, which POSIX leaves open."""
        return filesystem_of(self.directory) in _JOURNALING

    def _sync_names(self) -> None:
        _sync(self.directory)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def filesystem_of(path: Path) -> str:
    """The kind of filesystem that a path is on, as Linux names it; empty where that cannot be told."""
    with suppress(OSError, ValueError, IndexError):
        device = path.stat().st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            if before.split()[2] == number:
                return after.split()[0]
    return ""


def _forked() -> None:
    """Locks stay with the parent; so does the one of this module, which may be held just now."""
    global _taking
    _taking = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def default_directory(store: str) -> Path:
    """Where reports for that store wait, if nobody says otherwise: the same for all workers of this user.

    A file that is named from where a program runs is another file in another directory.
    """
    is_relative = store.startswith("sqlite:///") and not store.startswith("sqlite:////")
    store = f"{store} in {Path.cwd()}" if is_relative else store
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "redrive" / "spool" / hashlib.blake2b(store.encode(), digest_size=8).hexdigest()
