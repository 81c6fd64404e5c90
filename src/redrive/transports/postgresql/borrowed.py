"""Sends on a connection of the user's own: the message exists exactly when his data does.

It is one statement in his transaction. His connection may be psycopg's (sync or async), asyncpg's, or a connection or
session of SQLAlchemy (sync or async); none of these libraries is imported before he has one of it.
"""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from redrive.drivers.postgresql.errors import why
from redrive.errors import UsageError, not_sent
from redrive.model import Message
from redrive.transports.base import busy, refused

_NAMES = (
    "meant", "source", "id", "priority", "delay", "attempts", "time", "tenant", "name", "key", "body", "rest",
)  # fmt: skip
_TYPES = (
    "text", "bytea", "bytea", "integer", "bigint", "integer", "bigint", "bigint", "bytea", "bigint", "bytea", "bytea",
)  # fmt: skip
_BEGIN = "begin one, send within it, and commit: that is when the message is there"
_GONE = ("3F000", "42883", "42P01")
_FAILED = "25P02"


async def send_on(connection: Any, schema: str, message: Message, arguments: tuple[Any, ...]) -> None:
    """Send it within the transaction of that connection. UsageError, before anything is sent, if there is none."""
    module = type(connection).__module__.partition(".")[0]
    if isinstance(connection, psycopg.AsyncConnection | psycopg.Connection):
        send = _by_psycopg
    elif module == "asyncpg":
        send = _by_asyncpg
    elif module == "sqlalchemy":
        send = _by_sqlalchemy
    else:
        raise UsageError(
            f"connection={type(connection).__name__}: it takes a connection of psycopg 3 or asyncpg, or a connection "
            "or session of SQLAlchemy"
        )
    try:
        answer = await send(connection, f"{schema}.queue_send_within", arguments)
    except UsageError:
        raise
    except Exception as error:
        _refuse(message, error)
    if answer == -1:
        raise UsageError("connection=: it leads to another database than the one that has this queue")


async def _by_psycopg(connection: Any, function: str, arguments: tuple[Any, ...]) -> int:
    if connection.closed:
        raise _closed()
    status = connection.info.transaction_status
    if status is TransactionStatus.IDLE:
        raise _not_begun("`async with connection.transaction():`")
    if status is TransactionStatus.INERROR:
        raise _has_failed()
    values = ", ".join(f"%b::{kind}" for kind in _TYPES)
    cursor = connection.cursor(row_factory=tuple_row)
    done = cursor.execute(f"SELECT {function}({values})".encode(), arguments)
    if inspect.isawaitable(done):
        await done
    row = cursor.fetchone()
    found = await row if inspect.isawaitable(row) else row
    return int(found[0])


async def _by_asyncpg(connection: Any, function: str, arguments: tuple[Any, ...]) -> int:
    try:
        is_closed, is_inside = connection.is_closed(), connection.is_in_transaction()
    except Exception as error:  # of a connection that went back to its pool
        raise _closed() from error
    if is_closed:
        raise _closed()
    if not is_inside:
        raise _not_begun("`async with connection.transaction():`")
    values = ", ".join(f"${number}::{kind}" for number, kind in enumerate(_TYPES, 1))
    return int(await connection.fetchval(f"SELECT {function}({values})", *arguments))


async def _by_sqlalchemy(connection: Any, function: str, arguments: tuple[Any, ...]) -> int:
    from sqlalchemy import text

    if not hasattr(connection, "execute") or not hasattr(connection, "in_transaction"):
        raise UsageError(f"connection={type(connection).__name__}: give a connection or a session of SQLAlchemy")
    if getattr(connection, "closed", False):
        raise _closed()
    if not connection.in_transaction():
        raise _not_begun("`with connection.begin():`")
    inner = connection
    if hasattr(connection, "get_bind"):  # a session
        inner = connection.connection()
        inner = await inner if inspect.iscoroutine(inner) else inner
    _look_at_isolation(getattr(inner, "sync_connection", inner))
    values = ", ".join(f"CAST(:{name} AS {kind})" for name, kind in zip(_NAMES, _TYPES, strict=True))
    statement = text(f"SELECT {function}({values})")
    result = inner.execute(statement, dict(zip(_NAMES, arguments, strict=True)))
    result = await result if inspect.iscoroutine(result) else result
    return int(result.scalar_one())


def _look_at_isolation(connection: Any) -> None:
    """Its transaction is none, if every statement is committed by itself; and PostgreSQL is at its other end."""
    if connection.dialect.name != "postgresql":
        raise UsageError(f"connection=: it leads to {connection.dialect.name}, and this queue is in PostgreSQL")
    made = connection.connection.dbapi_connection
    if getattr(made, "autocommit", False) is True:
        raise _not_begun("a connection that is not AUTOCOMMIT")


def _refuse(message: Message, error: Exception) -> NoReturn:
    """Tell what the server, or the driver, has against it. His transaction has failed with it."""
    state = _state(error)
    if state == _FAILED:
        raise _has_failed() from error
    if state in _GONE:
        raise UsageError(
            "connection=: there is no such queue at its other end: it leads to another database, or its user lacks the "
            f"right to use it ({why(error)})"
        ) from error
    if isinstance(error, psycopg.DataError):
        raise not_sent([(message, refused(f"PostgreSQL cannot hold it: {why(error)}"))]) from error
    raise not_sent([(message, busy(f"in the given transaction: {why(error)}"))]) from error


def _state(error: BaseException) -> str:
    """The code that PostgreSQL gave it, whichever driver tells it."""
    inner = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's error
    return getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None) or ""


def _closed() -> UsageError:
    return UsageError("connection=: it is closed: send before its block ends")


def _not_begun(how: str) -> UsageError:
    return UsageError(f"connection=: it is not in a transaction ({how}): {_BEGIN}")


def _has_failed() -> UsageError:
    return UsageError("connection=: its transaction has failed already: roll it back, and begin again")
