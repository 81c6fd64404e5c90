"""One child process of the supervisor, and the socket to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from datetime import timedelta
from itertools import count

import msgspec

from redrive.processes.child import VARIABLE
from redrive.processes.systemd import VARIABLES
from redrive.processes.wire import Answer, Ask, Beat, Channel, Order, Said, Started, Stop

MARGIN = timedelta(seconds=10)
"""How long beyond its grace a process has for its last acknowledgements; then it hangs, and is killed."""
_LAST_WORDS = 1.0  # seconds in which what a process has said is read after its end


class Process:
    """Started with its own process group, so that Ctrl-C in a terminal reaches the supervisor only."""

    def __init__(
        self, number: int, child: asyncio.subprocess.Process, channel: Channel[Said], margin: timedelta
    ) -> None:
        self.number = number
        self.pid = child.pid
        self.started = asyncio.Event()
        self.is_overdue = False  # it had to be killed because it did not stop
        self.counted = b""  # its metrics, as it said last
        self.heard = asyncio.get_running_loop().time()
        self._child = child
        self._channel = channel
        self._patience = margin
        self._ids = count(1)
        self._asked: dict[int, asyncio.Future[bytes | None]] = {}
        self._hearing = asyncio.create_task(self._hear())
        self._overdue: asyncio.TimerHandle | None = None

    @classmethod
    async def start(
        cls, command: Sequence[str], number: int, *, checks: bool = False, margin: timedelta = MARGIN
    ) -> Process:
        """Run that command as the process of that number."""
        with contextlib.ExitStack() as opened:
            ours, theirs = map(opened.enter_context, socket.socketpair())
            order = msgspec.json.encode(Order(number, theirs.fileno(), checks)).decode()
            child = await asyncio.create_subprocess_exec(
                *command,
                env={name: value for name, value in os.environ.items() if name not in VARIABLES} | {VARIABLE: order},
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
            return cls(number, child, await Channel.opened(ours.dup(), Said), margin)

    async def ended(self) -> int:
        """Its exit code, when it has ended; below 0 the signal that ended it."""
        code = await self._child.wait()
        with contextlib.suppress(TimeoutError):  # somebody it started holds its socket
            async with asyncio.timeout(_LAST_WORDS):
                await self._hearing
        if self._overdue is not None:
            self._overdue.cancel()
        for asked in self._asked.values():
            asked.cancel()
        await self._channel.aclose()
        return code

    def stop(self) -> None:
        """Let it finish within its grace. One that has not started yet has nothing to finish."""
        if self.started.is_set():
            self._channel.send(Stop())
        else:
            self.signal(signal.SIGTERM)
        if self._overdue is None:
            seconds = self._patience.total_seconds()
            self._overdue = asyncio.get_running_loop().call_later(seconds, self._kill_overdue)

    def kill(self) -> None:
        """What it held comes back when its leases end."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)

    async def ask(self, what: str, text: str = "", patience: float = 6.0) -> bytes | None:
        """Its answer; None if it has none, or not in time."""
        id, answer = next(self._ids), asyncio.get_running_loop().create_future()
        self._asked[id] = answer
        self._channel.send(Ask(id, what, text))
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(answer)
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            if answer.cancelled():  # it died
                return None
            raise
        finally:
            del self._asked[id]

    async def _hear(self) -> None:
        async for said in self._channel:
            self.heard = asyncio.get_running_loop().time()
            match said:
                case Started(grace):
                    self._patience += timedelta(seconds=grace)
                    self.started.set()
                case Beat(counted):
                    self.counted = counted
                case Answer(id, body) if id in self._asked and not self._asked[id].done():
                    self._asked[id].set_result(body)

    def _kill_overdue(self) -> None:
        self.is_overdue = True
        self.kill()
