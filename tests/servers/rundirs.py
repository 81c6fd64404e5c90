"""Directories for what running servers write: config, data and logs, all thrown away in the end."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.servers.cache import home


@contextmanager
def _changing_run_directories() -> Iterator[Path]:
    parent = home() / "run"
    parent.mkdir(parents=True, exist_ok=True)
    with (home() / "run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield parent


@cache
def run_directory() -> Path:
    """This process's own directory. It goes when the process ends, or, if that was killed, with the next."""
    with _changing_run_directories() as parent:
        for abandoned in filter(_is_abandoned, parent.iterdir()):
            shutil.rmtree(abandoned, ignore_errors=True)
        directory = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
        directory.chmod(0o755)  # a server may run as another user
        fcntl.flock(os.open(directory, os.O_RDONLY), fcntl.LOCK_EX)  # held, and inherited by nobody, until we end
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _is_abandoned(directory: Path) -> bool:
    try:
        handle = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:  # its process has ended just now, and taken it along
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def new_directory(name: str) -> Path:
    """A fresh directory for one server of this process, readable by every user."""
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=run_directory()))
    directory.chmod(0o755)
    return directory
