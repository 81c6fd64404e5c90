"""A shadow replay: letters run through a handler in a process of its own, and nothing comes of it but numbers.

Letters are read and none is claimed, sent, resolved or changed. The process is isolated (isolation.py) and gets the
variables that the user has for it. A handler that ends its process, or hangs, has failed with that letter; another
process goes on with the next.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.debugging.wire import LENGTH, Answer, Ready, Refused, Tried, answer_in, framed
from redrive.errors import UsageError
from redrive.model import Letter

_START = 120.0  # seconds that the user's modules may take to be imported
_LOOK = 0.05  # seconds
_GRACE = 5.0  # seconds beyond its own time limit after which a handler hangs for good
MOST_EXAMPLES = 3


class ShadowGroup(Struct, frozen=True, kw_only=True):
    """Letters that would fail alike."""

    group: str
    same: bool  # it is the group that they are in: the bug is still there. Otherwise they fail elsewhere now
    count: int
    error_type: str
    message: str
    letters: tuple[str, ...]  # some of them


class ShadowReport(Struct, frozen=True, kw_only=True):
    """What would become of the letters."""

    selected: int  # letters that the query has
    tried: int = 0
    succeeded: int = 0
    failed: int = 0
    groups: tuple[ShadowGroup, ...] = ()  # the largest first
    sent: dict[str, int] = {}  # source -> messages that were not sent, as nothing is
    stopped: str = ""  # why not all were tried


class Lost(Exception):
    """The process of the handler ended, or had to be ended."""


class Process:
    """The process that runs the handler, made when it is first needed."""

    def __init__(self, target: str, environ: Mapping[str, str]) -> None:
        self._target = target
        self._environ = {**os.environ, **environ}
        self._process: asyncio.subprocess.Process | None = None
        self._seconds = _START

    async def tried(self, letter: Letter, most: float) -> Tried:
        """What becomes of that letter. Lost says how the process ended over it. UsageError: it cannot run at all."""
        process = self._process or await self._start()
        assert process.stdin is not None
        with suppress(ConnectionError):
            process.stdin.write(framed(letter.message))
            await process.stdin.drain()
        while True:
            answer = await self._answer(process, most)
            if isinstance(answer, Tried):
                return answer
            if isinstance(answer, Refused):
                await self.aclose()
                raise UsageError(answer.why)
            self._seconds = answer.seconds + _GRACE

    async def _start(self) -> asyncio.subprocess.Process:
        self._seconds = _START
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "redrive.debugging.child",
            self._target,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
            limit=1 << 26,
        )
        return self._process

    async def _answer(self, process: asyncio.subprocess.Process, most: float) -> Answer:
        """Its next answer. Its end is looked for beside it: what a handler has forked may hold the pipe open."""
        seconds = min(self._seconds, most)
        reading, ends = asyncio.create_task(_read(process)), monotonic() + seconds
        try:
            while not reading.done() and process.returncode is None and monotonic() < ends:
                await asyncio.wait({reading}, timeout=_LOOK)
            if not reading.done():
                await asyncio.wait({reading}, timeout=_LOOK)  # what it said before it ended
            if reading.done() and not reading.exception():
                return reading.result()
            is_hung = process.returncode is None and not reading.done()
            await self.aclose()
            raise Lost(f"it hangs: nothing was heard of it for {seconds:.0f} s" if is_hung else _ended(process))
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def aclose(self) -> None:
        """End the process and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        ends = monotonic() + _GRACE
        while process.returncode is None and monotonic() < ends and _is_ending(process):  # noqa: ASYNC110 - its exit is no event
            await asyncio.sleep(_LOOK)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        while process.returncode is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)
        if process.stdin is not None:
            process.stdin.close()


def _is_ending(process: asyncio.subprocess.Process) -> bool:
    """Whether it has closed its end of the pipe: then its exit code is about to be known."""
    return process.stdout is not None and process.stdout.at_eof()


async def _read(process: asyncio.subprocess.Process) -> Answer:
    assert process.stdout is not None
    length = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
    return answer_in(await process.stdout.readexactly(length))


def _ended(process: asyncio.subprocess.Process) -> str:
    code = process.returncode
    if code is not None and code < 0 and code != -signal.SIGKILL:
        return f"it took its process down: {signal.Signals(-code).name}"
    if code is not None and code >= 0:
        return f"it ended its process, with exit code {code}"
    return "it took its process down"


async def shadow_replay(
    letters: AsyncIterator[Letter],
    selected: int,
    process: Process,
    clock: Clock,
    *,
    within: timedelta,
    progress: Callable[[int], None] = lambda tried: None,
) -> ShadowReport:
    """Run the letters through the handler, for at most so long."""
    tally = _Tally(selected)
    ends = clock.elapsed() + within.total_seconds()
    try:
        async for letter in letters:
            if (left := ends - clock.elapsed()) <= 0:
                tally.stopped = "the time is over"
                break
            await _try(letter, process, left, tally)
            progress(1)
    finally:
        await process.aclose()
    return tally.report()


async def _try(letter: Letter, process: Process, left: float, tally: _Tally) -> None:
    try:
        answer = await process.tried(letter, left)
    except Lost as lost:
        tally.add(letter, "redrive.Crashed", str(lost), "", {})
    else:
        failure = answer.failure
        kind, text = ("", "") if failure is None else (failure.type, failure.message)
        tally.add(letter, kind, text, answer.group, answer.sent)


class _Tally:
    """Counts what became of each."""

    def __init__(self, selected: int) -> None:
        self._report = ShadowReport(selected=selected)
        self._groups: dict[tuple[str, bool], ShadowGroup] = {}
        self._sent: dict[str, int] = {}
        self.stopped = ""

    def add(self, letter: Letter, kind: str, text: str, group: str, sent: Mapping[str, int]) -> None:
        known = self._report
        self._report = replace(
            known, tried=known.tried + 1, succeeded=known.succeeded + (not kind), failed=known.failed + bool(kind)
        )
        for source, count in sent.items():
            self._sent[source] = self._sent.get(source, 0) + count
        if kind:
            self._fail(letter, kind, text, group or f"{kind}: {text}")

    def _fail(self, letter: Letter, kind: str, text: str, group: str) -> None:
        same = group == letter.group
        empty = ShadowGroup(group=group, same=same, count=0, error_type=kind, message=text, letters=())
        known = self._groups.get((group, same), empty)
        examples = (*known.letters, letter.id)[:MOST_EXAMPLES]
        self._groups[group, same] = replace(known, count=known.count + 1, letters=examples)

    def report(self) -> ShadowReport:
        groups = sorted(self._groups.values(), key=lambda group: (-group.count, group.group))
        stopped = self.stopped
        if not stopped and self._report.tried < self._report.selected:
            stopped = f"only the first {self._report.tried:,} were to be tried"
        return replace(self._report, groups=tuple(groups), sent=self._sent, stopped=stopped)


__all__ = ["Lost", "Process", "Ready", "ShadowGroup", "ShadowReport", "shadow_replay"]
