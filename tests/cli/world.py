"""What the tests of the command line share."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner, Result
from msgspec.structs import replace

from redrive.app import Redrive
from redrive.cli import main
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import Category, Failure, Letter, Message, Reason, State, letter_id
from redrive.service import Service

T = TypeVar("T")
SOON = 60.0
RAW = b'\xff\xfe\x00{"not": "utf-8"}'
HEADERS = (("trace", b"a"), ("trace", b"\xfa\xfb"), ("authorization", b"Bearer s3cr3t-token-value"))


def letter(
    number: int,
    *,
    source: str = "orders",
    state: State = State.PENDING,
    category: Category = Category.NETWORK,
    group: str = "groupaaaaaaa",
    error: str = "ConnectionError",
    text: str = "gateway refused, password=hunter2",
    code: str | None = None,
    tenant: str | None = None,
    age: timedelta = timedelta(minutes=5),
    body: bytes = b'{"n": 1}',
    headers: tuple[tuple[str, bytes], ...] = (),
    depends_on: tuple[str, ...] = (),
    transport: str = "default",
) -> Letter:
    at = datetime.now(UTC) - age
    message = Message(f"m{number}", source, body, at, headers, key=b"k%d" % number, tenant=tenant)
    frame = 'Traceback (most recent call last):\n  File "shop.py", line 7, in charge\n'
    first = Failure(error, text, category, True, at, 1, code=code, stack=f"{frame}{error}: {text}\n", worker="w:1")
    return Letter(
        id=letter_id(source, message.id),
        message=message,
        failures=(first, replace(first, attempt=2, at=at + timedelta(seconds=1))),
        state=state,
        reason=Reason.ATTEMPTS,
        group=group,
        created_at=at,
        updated_at=at,
        depends_on=depends_on,
        transport=transport,
    )


@dataclass
class Shell:
    """Runs commands in one directory."""

    place: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kept: Path | None = None  # where the database is, if a server has it

    def __call__(self, *words: str, code: int | None = 0, input: str | bytes | None = None) -> Result:
        """In this process."""
        done = CliRunner().invoke(main, list(words), input=input, prog_name="redrive")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert code is None or done.exit_code == code, (done.exit_code, done.stdout, done.stderr)
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        """Everything on stdout is one JSON document."""
        return json.loads(self(*words, "--json", code=code).stdout)

    def process(
        self, *words: str, code: int | None = 0, input: bytes | None = None, **environ: str
    ) -> subprocess.CompletedProcess[bytes]:
        """As a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *words],
            cwd=self.place,
            env=os.environ | environ,
            input=b"" if input is None else input,
            capture_output=True,
            timeout=SOON,
        )
        assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """As a process that goes on beside us."""
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", *words],
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """What still runs, because its test failed, ends with it and is nobody else's trouble."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def ask(self, work: Callable[[Service], Awaitable[T]], file: str = "redrive.db") -> T:
        """The same database, without the command line."""

        async def asked() -> T:
            url = f"sqlite:///{(self.kept or self.place) / file}"
            async with Redrive(settings=Settings(store=url, transports={"default": url})) as app:
                return await work(Service(app))

        return asyncio.run(asked())

    def keep(self, letters: Sequence[Letter], file: str = "redrive.db") -> None:
        self.ask(lambda service: service.app.store.letters.record(letters), file)

    def queued(self, file: str = "redrive.db") -> dict[str, int]:
        """How many messages wait in each source."""
        depths = self.ask(lambda service: service.app.transport().depths(), file)
        return {source: depth.total for source, depth in depths.items()}

    def state_of(self, id: str) -> State:
        return self.ask(lambda service: service.find(id)).state


@dataclass
class World:
    """A database with letters in it."""

    shell: Shell
    letters: dict[str, Letter] = field(default_factory=dict)

    @classmethod
    def made(cls, shell: Shell) -> World:
        other = {"group": "groupbbbbbbb", "error": "ValueError", "text": "no such mailbox", "code": "550"}
        made = {
            "new": letter(1, tenant="acme"),
            "raw": letter(2, tenant="acme", body=RAW, headers=HEADERS),
            "old": letter(3, age=timedelta(days=3), state=State.EXHAUSTED),
            "mail": letter(4, source="mails", category=Category.PERMANENT, **other),  # type: ignore[arg-type]
            "done": letter(5, source="mails", state=State.RESOLVED, category=Category.PERMANENT, **other),  # type: ignore[arg-type]
            "away": letter(6, source="files", state=State.ARCHIVED, text="disk is full", group="groupccccccc"),
        }
        shell.keep(list(made.values()))
        return cls(shell, made)

    def id(self, name: str) -> str:
        return self.letters[name].id

    def names(self, ids: Sequence[str]) -> set[str]:
        known = {one.id: name for name, one in self.letters.items()}
        return {known[id] for id in ids}

    def count(self, query: Query | None = None) -> int:
        return self.shell.ask(lambda service: service.count(query or Query()))
