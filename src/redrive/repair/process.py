"""The child of a repair, as its parent sees it: asked letter by letter, ended when it takes too long, started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import deque
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec import Struct

from redrive.errors import UsageError
from redrive.model import Headers, Letter
from redrive.repair import script
from redrive.repair.script import LENGTHS, LINE, frame_of

_STARTING = 60.0
_MOST_DEATHS = 3
_PRINTED = 5


class Repaired(Struct, frozen=True):
    """What the script made of a letter. Of one that failed, why and where; nothing else is set then."""

    body: bytes | None = None  # None: as it was
    headers: Headers | None = None
    failed: str | None = None

    @property
    def is_changed(self) -> bool:
        return self.body is not None


class ScriptFailed(UsageError):
    """The script cannot be run at all, or dies again and again."""


class Script:
    """Runs a script over letters, one at a time.

    timeout   what one letter may take
    memory    how many bytes the script may use
    """

    def __init__(self, path: Path, *, timeout: timedelta, memory: int) -> None:
        if not path.is_file():
            raise ScriptFailed(f"there is no file {path}: name the file with `def repair(message)`")
        self._path = path.resolve()
        self._timeout = timeout.total_seconds()
        self._memory = memory
        self._process: asyncio.subprocess.Process | None = None
        self._closing = ExitStack()
        self._lines = -1  # the file in which the child notes its line
        self._lines_name = ""
        self._deaths = 0
        self._drain: asyncio.Task[None] | None = None
        self.printed = 0
        self.first_printed: deque[str] = deque(maxlen=_PRINTED)

    async def __aenter__(self) -> Script:
        lines = self._closing.enter_context(tempfile.NamedTemporaryFile(prefix="redrive-repair-"))  # noqa: SIM115
        lines.write(bytes(LINE.size))
        lines.flush()
        self._lines, self._lines_name = lines.fileno(), lines.name
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        with self._closing:
            await self._end()

    async def repair(self, letter: Letter) -> Repaired:
        """What the script makes of a letter. Raises ScriptFailed if it keeps dying."""
        if self._process is None:
            await self._start()
        try:
            head, body = await asyncio.wait_for(self._asked(letter), self._timeout)
        except TimeoutError:
            return await self._died(f"it took longer than {self._timeout:g} s")
        except (asyncio.IncompleteReadError, ConnectionError, BrokenPipeError):
            return await self._died(None)
        self._deaths = 0
        match head["status"]:
            case "unchanged":
                return Repaired()
            case "changed":
                return Repaired(body, _headers(letter.message.headers, head["headers"]))
        return Repaired(failed=self._at(head["why"], head["line"]))

    async def _start(self) -> None:
        os.pwrite(self._lines, LINE.pack(0), 0)
        arguments = (str(self._path), self._lines_name, str(self._memory), str(self._timeout))
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(script.__file__)),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._drain = asyncio.create_task(self._read_prints(self._process))
        try:
            head, _ = await asyncio.wait_for(self._read(), _STARTING)
        except TimeoutError:
            raise ScriptFailed(self._at(f"it is not loaded after {_STARTING:g} s", self._line())) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._end()
            raise ScriptFailed(
                self._at(f"it ended its process ({_ended(code)}) while it was loaded", self._line())
            ) from None
        if head["status"] == "failed":
            raise ScriptFailed(self._at(head["why"], head["line"]))

    async def _asked(self, letter: Letter) -> tuple[dict[str, Any], bytes]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(frame_of(_head(letter), letter.message.body))
        await self._process.stdin.drain()
        return await self._read()

    async def _read(self) -> tuple[dict[str, Any], bytes]:
        assert self._process is not None
        assert self._process.stdout is not None
        head, body = LENGTHS.unpack(await self._process.stdout.readexactly(LENGTHS.size))
        text = await self._process.stdout.readexactly(head)
        return json.loads(text), await self._process.stdout.readexactly(body)

    async def _died(self, why: str | None) -> Repaired:
        line = self._line()
        code = await self._end()
        said = self._at(why or f"it ended its process ({_ended(code)})", line)
        self._deaths += 1
        if self._deaths >= _MOST_DEATHS:
            raise ScriptFailed(f"{said}: {_MOST_DEATHS} letters in a row, so it is given up")
        return Repaired(failed=said)

    async def _end(self) -> int | None:
        """End the process and all that it started; returns how it ended by itself, if it did."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        code = await process.wait()
        if self._drain is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._drain, 5)
        return code

    async def _read_prints(self, process: asyncio.subprocess.Process) -> None:
        """Count what the script prints, and keep the first of it: a full pipe would stop it."""
        assert process.stderr is not None
        while data := await process.stderr.read(64 * 1024):
            lines = data.decode("utf-8", "replace").splitlines()
            left = _PRINTED - len(self.first_printed)
            self.first_printed.extend(line[:200] for line in lines[: max(0, left)])
            self.printed += len(lines)

    def _line(self) -> int:
        return int(LINE.unpack(os.pread(self._lines, LINE.size, 0))[0])

    def _at(self, why: str, line: int) -> str:
        return f"{self._path.name}:{line}: {why}" if line else f"{self._path.name}: {why}"


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name if -code in [known.value for known in signal.Signals] else f"signal {-code}"
    return f"exit {code}"


def _head(letter: Letter) -> dict[str, Any]:
    message = letter.message
    return {
        "id": message.id,
        "source": message.source,
        "key": None if message.key is None else message.key.decode("latin-1"),
        "tenant": message.tenant,
        "error": f"{letter.last.type}: {letter.last.message}",
        "headers": [(name, value.decode("latin-1")) for name, value in message.headers],
    }


def _headers(before: Headers, changed: dict[str, str | None]) -> Headers:
    """The headers after the script: those that it left alone are in their place, repeats included."""
    kept = tuple(pair for pair in before if pair[0] not in changed)
    return kept + tuple((name, value.encode("latin-1")) for name, value in changed.items() if value is not None)
