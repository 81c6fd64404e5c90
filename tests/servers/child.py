"""Child processes that never outlive us."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from pwd import getpwnam

# A parent that ended before its child was tied to it can no longer take the child along.
UNLESS_ORPHANED = '[ "$PPID" = "$0" ] && exec "$@"'


class Keeper(threading.Thread):
    """A thread that outlives the servers it starts: it stops them itself, or they end when it ends."""


def spawn(
    command: Sequence[str | Path], *, cwd: Path, log: Path, env: Mapping[str, str], user: str | None = None
) -> subprocess.Popen[bytes]:
    """Starts a command in its own session; the kernel kills it when this process ends, however it ends."""
    thread = threading.current_thread()
    if thread is not threading.main_thread() and not isinstance(thread, Keeper):
        raise RuntimeError("start servers from the main thread: a child is tied to the thread that made it")
    with log.open("ab") as output:
        return subprocess.Popen(
            [*_tied_to_us(user), *command],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _tied_to_us(user: str | None) -> Sequence[str]:
    """What stands before a command; each part turns into the next, so the process id stays the command's own."""
    change_user = (f"--reuid={user}", f"--regid={getpwnam(user).pw_gid}", "--clear-groups") if user else ()
    return ["setpriv", "--pdeathsig=KILL", *change_user, "sh", "-c", UNLESS_ORPHANED, str(os.getpid())]


def end(process: subprocess.Popen[bytes], how: signal.Signals, patience: float) -> int:
    """Ends the process and all it started, and returns its exit code; SIGKILL follows after `patience`."""
    process.send_signal(how)
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def how_it_ended(returncode: int) -> str:
    """An exit code in words."""
    return f"ended by {signal.Signals(-returncode).name}" if returncode < 0 else f"exited with {returncode}"
