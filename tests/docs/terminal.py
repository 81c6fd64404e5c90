"""A command at a terminal of 100 columns: what a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

PATIENCE = 120.0  # until something is taken to be stuck; nothing waits that long when all is well
_QUESTION = re.compile(r"\[y/N\]: $")


class Command:
    """Runs from now on; answers yes when it is asked."""

    def __init__(self, text: str, cwd: Path, environ: Mapping[str, str]) -> None:
        self.text = text
        self._printed = ""
        self._ended = False
        self._news = threading.Condition()
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        self._process = subprocess.Popen(
            ["bash", "-c", text],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env=environ,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def printed(self) -> str:
        return self._printed

    def wait_for(self, is_there: Callable[[str], bool]) -> bool:
        """Until what it printed is that; False if it ends without."""
        with self._news:
            self._news.wait_for(lambda: self._ended or is_there(self._printed), PATIENCE)
            return is_there(self._printed)

    def ended(self) -> int:
        """Its exit code, when it has ended."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._kill()
            raise AssertionError(f"{self.text} does not end; it printed:\n{self._printed}") from None
        self._reader.join(PATIENCE)
        return code

    def interrupt(self) -> int:
        """Ctrl-C, and its exit code."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self.ended()

    def close(self) -> None:
        """Whatever it does. The terminal goes last: who has it when it goes is hung up on."""
        if self._process.poll() is None:
            self._kill()
        self._reader.join(PATIENCE)
        os.close(self._terminal)

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read(self) -> None:
        while data := _some(self._terminal):
            with self._news:
                self._printed += data.decode("utf-8", "replace")
                self._news.notify_all()
            if _QUESTION.search(self._printed):
                os.write(self._terminal, b"y\n")
        with self._news:
            self._ended = True
            self._news.notify_all()


def _some(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how a terminal says that nobody writes to it any more
        return b""
