"""Child processes that never outlive us."""

import ctypes
import os
import pwd
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def spawn(
    command: Sequence[str | Path], *, cwd: Path, log: Path, env: Mapping[str, str], user: str | None = None
) -> subprocess.Popen[bytes]:
    """Starts a command in its own session; the kernel kills it when this process ends, however it ends."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "start servers from the main thread: the kernel ties a child to the thread that made it"
        )
    parent = os.getpid()

    # After the change of user, which would clear the death signal; Popen calls it at that point.
    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )


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
