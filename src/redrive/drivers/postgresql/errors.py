"""The errors of PostgreSQL in words of ours: what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from redrive.errors import Unavailable

AGAIN = ("40001", "40P01")
"""Serialization failure and deadlock: the transaction was rolled back, and may be run again as it is."""
GONE = ("3F000", "42P01", "42883")
"""A schema, a table or a function is not there: somebody has dropped it, or this is another database."""
_MENDS = {
    "28": "it refuses us: correct user and password in the URL, or its pg_hba.conf",
    "3D000": "there is no such database: make it with `createdb`, or correct the name in the URL",
    "42501": "its user lacks a right: `redrive doctor` names the GRANT",
    "25006": "it takes no writes, as a standby does: name the primary in the URL, or all hosts of both",
    "53100": "its disk is full: make room, and nothing has to be restarted",
    "53300": "it has no connection left: raise max_connections, or lower `pool_size` in the URL, or use PgBouncer",
    "53": "it lacks resources",
    "57014": "it ended a statement that took too long: raise its statement_timeout",
    "57P": "it is being stopped or started",
    "3F000": "our tables are gone: they are made again with the next call",
    "42P01": "our tables are gone: they are made again with the next call",
    "42883": "our tables are gone: they are made again with the next call",
}


@contextmanager
def translated(shown: str, unavailable: type[Unavailable]) -> Iterator[None]:
    """Raise what goes wrong as `unavailable`, and a value that PostgreSQL can never hold as ValueError."""
    try:
        yield
    except (psycopg.DataError, psycopg.errors.ProgramLimitExceeded) as error:
        raise ValueError(f"PostgreSQL cannot hold a value: {_text(error)}") from error
    except TimeoutError as error:
        raise unavailable(shown, "no answer in time") from error
    except (psycopg.Error, OSError) as error:
        raise unavailable(shown, why(error)) from error


def why(error: BaseException) -> str:
    """The reason of an error, and what to do where something can be done."""
    text, state = _text(error), state_of(error)
    mend = next((_MENDS[state[:size]] for size in (5, 3, 2) if state[:size] in _MENDS), None)
    return f"{mend} ({text})" if mend else text


def state_of(error: BaseException) -> str:
    """The code that PostgreSQL gave it; empty if the error is not its own. What a login is refused with has none but in
    its text."""
    return getattr(error, "sqlstate", None) or _state_by_text(str(error))


def _state_by_text(text: str) -> str:
    """libpq tells no code when connecting fails."""
    for part, state in _CONNECTING.items():
        if part in text:
            return state
    return ""


_CONNECTING = {
    "authentication failed": "28P01",
    "no password supplied": "28P01",
    "no pg_hba.conf entry": "28000",
    'role "': "28000",
    "too many clients": "53300",
    "connection slots are reserved": "53300",
    "too many connections": "53300",
    "database system is": "57P03",
    "session is read-only": "25006",
    "hot standby": "25006",
    "does not exist": "3D000",
}


def _text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
