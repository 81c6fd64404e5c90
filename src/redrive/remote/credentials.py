"""Where a token is kept: the environment, a file that is named, the system's keyring, or a file of ours.

A login is kept for one server and sent to no other. The keyring is taken where the library `keyring` (extra `keyring`)
is installed and has one; without it a file that nobody but its owner can read.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from redrive.errors import ConfigError, UsageError
from redrive.private import open_private
from redrive.remote.problems import NotLoggedIn
from redrive.untrusted import UNREADABLE

TOKEN, TOKEN_FILE = "REDRIVE_TOKEN", "REDRIVE_TOKEN_FILE"
_SERVICE = "redrive"
_LOOK_EVERY = 0.05  # seconds between two looks whether another process has renewed a login


class Place(StrEnum):
    """Where a login is kept."""

    KEYRING = "keyring"
    FILE = "file"
    ENVIRONMENT = "environment"


class Login(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token, and, where an issuer gave it, what renews it."""

    token: str
    refresh_token: str = ""
    issuer: str = ""
    client_id: str = ""
    expires_at: datetime | None = None


def login_for(server: str) -> Login:
    """The token for that server: of the environment, else as `redrive login` kept it."""
    found = kept(server)
    if found is None:
        raise NotLoggedIn(f"you are not logged in to {server}: `redrive login`, or give a token in {TOKEN}")
    return found[0]


def kept(server: str) -> tuple[Login, Place] | None:
    """The token for that server, and where it is from; None if there is none."""
    if (text := os.environ.get(TOKEN)) is not None:
        return Login(token=checked_token(text, TOKEN)), Place.ENVIRONMENT
    if (name := os.environ.get(TOKEN_FILE)) is not None:
        return Login(token=checked_token(_private_text(Path(name)), name)), Place.ENVIRONMENT
    ring = keyring()
    if ring is not None and (text := _asked(ring, server)) is not None:
        return _read(text), Place.KEYRING
    found = _all(logins_file()).get(server)
    return None if found is None else (found, Place.FILE)


def keep(server: str, login: Login, *, in_file: bool = False) -> Place:
    """Keep a login for that server, in the keyring if there is one that takes it; returns where it is now."""
    ring = None if in_file else keyring()
    if ring is not None and _put(ring, server, msgspec.json.encode(login).decode()):
        _change(server, None)
        return Place.KEYRING
    _change(server, login)
    if (other := keyring()) is not None:
        _drop(other, server)
    return Place.FILE


def forget(server: str) -> bool:
    """Forget what is kept for that server, wherever it is; whether there was anything."""
    ring = keyring()
    in_ring = ring is not None and _drop(ring, server)
    return _change(server, None) or in_ring


def checked_token(text: str, where: str) -> str:
    """The token, if that is one line that can be sent. UsageError never shows it."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"what {where} has is no token: it is one line of letters, such as rdr_…")
    return token


def logins_file() -> Path:
    """The file of logins, for machines without a keyring."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "redrive" / "logins.json"


def keyring() -> Any:
    """The keyring of this system; None if the library is not installed, or the system has none that works."""
    try:
        import keyring as library
        from keyring.backends import fail
    except ImportError:
        return None
    try:
        found = library.get_keyring()
    except Exception:  # whatever a backend raises that is configured and not there
        return None
    return None if isinstance(found, fail.Keyring) or found.priority <= 0 else found


def _asked(ring: Any, server: str) -> str | None:
    try:
        text: str | None = ring.get_password(_SERVICE, server)
    except Exception:  # locked, or nobody there to unlock it
        return None
    return text


def _put(ring: Any, server: str, text: str) -> bool:
    try:
        ring.set_password(_SERVICE, server, text)
    except Exception:  # locked, or the text is longer than it takes
        return False
    return True


def _drop(ring: Any, server: str) -> bool:
    try:
        ring.delete_password(_SERVICE, server)
    except Exception:  # there was none
        return False
    return True


def _read(text: str) -> Login:
    try:
        return msgspec.json.decode(text, type=Login)
    except UNREADABLE as error:
        raise ConfigError(
            f"what the keyring has for this server is no login: `redrive logout`, and login again ({error})"
        ) from None


def _all(file: Path) -> dict[str, Login]:
    try:
        text = _private_text(file)
    except FileNotFoundError:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Login])
    except UNREADABLE as error:
        raise ConfigError(f"{file} is not what `redrive login` wrote: remove it, and login again ({error})") from None


def _private_text(file: Path) -> str:
    """What a file has that nobody else can read. A token that others can read is not used: it has to be replaced."""
    with file.open("rb") as opened:
        mode = os.fstat(opened.fileno()).st_mode & 0o777
        if mode & 0o077:
            raise ConfigError(
                f"{file} can be read by others (mode {mode:04o}): replace the token in it, and chmod 600 {file}"
            )
        return opened.read(1 << 20).decode("utf-8", "replace")


def _change(server: str, login: Login | None) -> bool:
    """Write or remove the login of a server; whether there was one. The file is whole at any moment."""
    file = logins_file()
    if login is None and not file.exists():
        return False
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(file):
        found = _all(file)
        there = found.pop(server, None) is not None
        if login is not None:
            found[server] = login
        part = file.with_name(f"{file.name}.part")
        part.unlink(missing_ok=True)
        with open_private(part, "wb") as out:
            out.write(msgspec.json.encode(found))
        part.replace(file)
        return there


@asynccontextmanager
async def renewing(server: str) -> AsyncIterator[None]:
    """One process of this machine at a time: where refresh tokens are good once, two that redeem one end the login."""
    file = logins_file().parent / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}.renewing"
    with ExitStack() as stack:
        with suppress(OSError):  # a keyring works where nothing can be written
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = stack.enter_context(open_private(file, "ab"))
            while not _taken(lock):  # noqa: ASYNC110 - another process has it, which tells nobody
                await asyncio.sleep(_LOOK_EVERY)
        yield


def _taken(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One process at a time: two that renew a token at once must not lose each other's."""
    with open_private(file.with_name(f"{file.name}.lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
