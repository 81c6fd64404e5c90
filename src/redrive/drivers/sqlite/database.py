"""One SQLite file, shared by queue and letters: threads, group commit, schema, and translated errors.

One thread writes. Whatever was asked of it while it was committing goes into its next transaction together, so
that a hundred senders cost one fsync. Other threads read, and never wait for the writer (WAL); see reading.py.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from redrive.drivers.sqlite.reading import Readers, Reading
from redrive.errors import ConfigError, Unavailable
from redrive.model import letter_id

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

SCRIPTS = ("schema", "versions", "transports", "searchable", "series", "groups", "hits")
"""The first makes version 1 out of nothing, each of the others the next out of the one before."""
SCHEMA_VERSION = len(SCRIPTS)
_BUSY_SECONDS = 5.0
_READERS = 2
_MOST_TOGETHER = 500
_CLOSED = "it was closed"
_OLDEST_SQLITE = (3, 35, 0)  # RETURNING

_open: dict[Path, Database] = {}
_opening = threading.Lock()


class Job(Generic[T]):
    """Work for the writer, and where its answer goes: to an event loop, or to whoever holds the future."""

    __slots__ = ("future", "loop", "work")

    def __init__(self, work: Work[T], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.work = work
        self.loop = loop
        self.future: Future[T] | asyncio.Future[T] = Future() if loop is None else loop.create_future()

    def answer(self, answer: Any, failed: BaseException | None) -> None:
        """Give the answer to whoever waits, if anybody still does; called in the thread of its loop, if it has one."""
        future = self.future
        if future.cancelled() if self.loop else not cast(Future[T], future).set_running_or_notify_cancel():
            return
        future.set_result(answer) if failed is None else future.set_exception(failed)


Answer = tuple[Job[Any], Any, BaseException | None]


class Database:
    """One file. Get it by `open_database`, which gives everybody in the process the same one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self._jobs: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._ended = False
        self._local = threading.local()
        self._readers = Readers(_READERS, "redrive-read", self._read)
        self._searchers = Readers(_READERS, "redrive-search", self._read)
        self._watching: sqlite3.Connection | None = None
        self._connections: list[sqlite3.Connection] = []
        _make_private(path)
        try:
            self._writer_connection = self._connect()
            self._prepare()
        except BaseException:  # it is not to be used, and nobody will close it
            self._disconnect()
            raise
        self._writer = threading.Thread(target=self._write_loop, name="redrive-write", daemon=True)
        self._writer.start()

    async def write(self, work: Work[T]) -> T:
        """Run it in a transaction; durable when it returns. Cancelling the wait does not undo the work.

        Its answer is a value and never a cursor, which would be let go in one thread while the other uses it.
        """
        job: Job[T] = Job(work, asyncio.get_running_loop())
        self._put(job)
        return await cast(asyncio.Future[T], job.future)

    def submit(self, work: Work[T]) -> Future[T]:
        """Like `write`, with a future that has the answer even if nobody waits for it any more."""
        job: Job[T] = Job(work)
        self._put(job)
        return cast(Future[T], job.future)

    def _put(self, job: Job[Any]) -> None:
        with self._gate:
            if self._ended:
                job.answer(None, Unavailable(str(self.path), _CLOSED))
            else:
                self._jobs.put(job)

    async def read(self, work: Work[T], *, is_search: bool = False) -> T:
        """Run it on a snapshot. It is interrupted if whoever waits for it is cancelled.

        is_search   it may look at many rows: it has threads apart, and what is quick never waits behind it
        """
        if self._ended:
            raise Unavailable(str(self.path), _CLOSED)
        return await (self._searchers if is_search else self._readers).read(work)

    async def pulse(self) -> int:
        """A number that is another one whenever anybody has written to the file, for a glance at memory that all share:
        asked of one connection that never writes."""

        def glance(_: sqlite3.Connection) -> int:
            with self._gate:
                self._watching = self._watching or self._connect()
                return int(self._watching.execute("PRAGMA data_version").fetchone()[0])

        return await self.read(glance)

    def close(self) -> None:
        self._jobs.put(None)
        self._writer.join()
        self._readers.close()
        self._searchers.close()
        self._disconnect()

    def _disconnect(self) -> None:
        for connection in self._connections:
            with suppress(sqlite3.Error):
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        with translated(self.path):
            connection = sqlite3.connect(
                self.path,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            self._connections.append(connection)
            connection.create_function("letter_id", 2, letter_id, deterministic=True)
            _use_wal(connection)
            connection.execute("PRAGMA synchronous=FULL")  # a promise of durability includes the power cord
            connection.execute("PRAGMA foreign_keys=OFF")
            connection.execute("PRAGMA cache_size=-16000")
            connection.execute("PRAGMA wal_autocheckpoint=1000")  # 4 MB: a log that grows costs each fsync more
            connection.execute("PRAGMA journal_size_limit=67108864")
            connection.execute("PRAGMA temp_store=MEMORY")
        return connection

    def _prepare(self) -> None:
        """Bring the file to our schema; a file of a newer Redrive, or not of SQLite, is left alone."""
        connection = self._writer_connection
        with translated(self.path):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise ConfigError(f"{self.path} was written by a newer Redrive (schema {version}): upgrade this one")
            if version < SCHEMA_VERSION:
                connection.execute("BEGIN IMMEDIATE")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version < SCHEMA_VERSION:  # nobody else has made it while we waited
                    for statement in (line for script in SCRIPTS[version:] for line in _statements_of(script)):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                connection.execute("COMMIT")

    def _read(self, reading: Reading[T]) -> T:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        with translated(self.path):
            connection.execute("BEGIN")
            try:
                return reading.run(connection)
            finally:
                connection.execute("ROLLBACK")

    def _write_loop(self) -> None:
        closing = False
        while not self._has_ended(closing):
            jobs = [self._jobs.get()]
            with suppress(queue.Empty):
                while len(jobs) < _MOST_TOGETHER:
                    jobs.append(self._jobs.get_nowait())
            closing = closing or None in jobs
            if asked := [job for job in jobs if job is not None]:
                self._write_together(asked)

    def _has_ended(self, closing: bool) -> bool:
        """Whether the end was asked for and all work before it is done; from then on work is refused."""
        with self._gate:
            self._ended = closing and self._jobs.empty()
            return self._ended

    def _write_together(self, jobs: list[Job[Any]]) -> None:
        """Do all jobs in one transaction; a job that fails takes only itself back."""
        try:
            answers = self._done(jobs)
        except Exception as error:
            answers = [(job, None, error) for job in jobs]
        for loop, some in _by_loop(answers).items():
            if loop is None:
                _answer_all(some)
            else:
                with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                    loop.call_soon_threadsafe(_answer_all, some)

    def _done(self, jobs: list[Job[Any]]) -> list[Answer]:
        """Jobs that cannot be done together are done apart: what is too large for a full disk, say, must not keep
        those from being done that would make room on it."""
        connection = self._writer_connection
        with translated(self.path):
            connection.execute("BEGIN IMMEDIATE")
        try:
            with translated(self.path):
                answers: list[Answer] = [(job, job.work(connection), None) for job in jobs]
                connection.execute("COMMIT")
                return answers
        except Exception:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if len(jobs) == 1:
                raise
        return [self._done_alone(job) for job in jobs]

    def _done_alone(self, job: Job[Any]) -> Answer:
        try:
            return self._done([job])[0]
        except Exception as error:
            return job, None, error


def _by_loop(answers: list[Answer]) -> dict[asyncio.AbstractEventLoop | None, list[Answer]]:
    """The answers by event loop, so that a loop is woken once, however many wait in it."""
    found: dict[asyncio.AbstractEventLoop | None, list[Answer]] = {}
    for answer in answers:
        found.setdefault(answer[0].loop, []).append(answer)
    return found


def _answer_all(answers: list[Answer]) -> None:
    for job, answer, failed in answers:
        job.answer(answer, failed)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL, and wait for others meanwhile: SQLite itself does not while the mode of a new file changes."""
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _make_private(path: Path) -> None:
    """Make a new file its owner's only: letters hold what customers sent. SQLite's own files beside it follow."""
    with suppress(OSError):  # it is there already, or cannot be made, which SQLite will say better
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class translated:
    """Turns SQLite's errors into ours, which say what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.IntegrityError):
            raise Unavailable(str(self.path), _advice(error)) from error


def _advice(error: sqlite3.Error) -> str:
    text = str(error)
    for part, advice in _ADVICE.items():
        if part in text:
            return f"{text} ({advice})"
    return text


_ADVICE = {
    "locked": "another process held it for longer than 5 s; `redrive doctor` shows how full it is",
    "disk is full": "make room on the disk; nothing that was accepted is lost",
    "unable to open": "does its directory exist, and may this user write there?",
    "readonly": "this user may not write to it",
    "not a database": "point `store` at another file: this one is not SQLite's",
    "malformed": "the file is damaged: `redrive export` what can be read, then start on a new file",
    "disk I/O": "the disk reports errors",
}


def open_database(url: str) -> Database:
    """The file of a `sqlite:///` URL: one Database for everybody in this process who asks for it."""
    path = path_of(url)
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old: Redrive needs 3.35 or newer")
    with _opening:
        database = _open.get(path)
        if database is None:
            database = _open[path] = Database(path)
        database.users += 1
        return database


def close_database(database: Database) -> None:
    """Give it back; it is closed when its last user did."""
    with _opening:
        database.users -= 1
        if database.users:
            return
        _open.pop(database.path, None)
    database.close()


def path_of(url: str) -> Path:
    """The path of `sqlite:///relative.db` or `sqlite:////absolute.db`."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite" or not rest.startswith("/") or len(rest) < 2:
        raise ConfigError(f"{url!r}: write sqlite:///relative/path.db or sqlite:////absolute/path.db")
    if "?" in rest:
        raise ConfigError(f"{url!r}: sqlite:// has no options, and a file with a ? in its name cannot be used")
    return Path(rest[1:]).resolve()


def sql(package: str, name: str) -> str:
    """The script `name`.sql that lies in that package, beside the code it belongs to."""
    return resources.files(package).joinpath(f"{name}.sql").read_text()


def _statements_of(script: str) -> Iterator[str]:
    return statements(sql(__package__, script))


def statements(script: str) -> Iterator[str]:
    """The statements of a script, which so can share a transaction; a trigger's own semicolons do not end it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def clauses(package: str, name: str) -> dict[str, str]:
    """The statements of one file, by the names in their `-- name:` lines."""
    found: dict[str, str] = {}
    for part in sql(package, name).split("-- name: ")[1:]:
        title, _, statement = part.partition("\n")
        found[title.strip()] = statement.strip().rstrip(";")
    return found
