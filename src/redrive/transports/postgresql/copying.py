"""Rows as COPY takes them in binary. psycopg writes them one value at a time, which costs more than the server does."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from redrive.transports.postgresql.rows import Row

_START = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # no flags, nothing more in the header
_END = b"\xff\xff"
_PLAIN = Struct(">hiiiiiiiqiiiiibi")  # of a message with nothing but an id and a body
_FIXED = Struct(">hiiiiiiiq")  # 11 columns: source, priority, attempts, time
_NUMBER, _LENGTH, _FLAG = Struct(">iq"), Struct(">i"), Struct(">ib")
_NULL = _LENGTH.pack(-1)
_COLUMNS = 11


def packed(source: int, fair: bool, now: int, rows: Iterable[Row]) -> bytes:
    """The whole of what COPY is sent. The columns are those of sql/copy.sql, in their order."""
    parts = [_START]
    add, plain, length = parts.append, _PLAIN.pack, _LENGTH.pack
    for row in rows:
        id, priority, delay, attempts, time, tenant, _, key, body, rest = row
        if delay or tenant is not None or key is not None or rest is not None or fair:
            add(_whole(source, fair, now, row))
        else:
            add(plain(_COLUMNS, 4, source, 4, priority, 4, attempts, 8, time, -1, -1, -1, -1, 1, 0, len(id)))
            add(id)
            add(length(len(body)))
            add(body)
    add(_END)
    return b"".join(parts)


def _whole(source: int, fair: bool, now: int, row: Row) -> bytes:
    id, priority, delay, attempts, time, tenant, _, key, body, rest = row
    due = now + delay if delay else None
    turn = tenant or 0 if fair else tenant
    return b"".join(
        (
            _FIXED.pack(_COLUMNS, 4, source, 4, priority, 4, attempts, 8, time),
            *(_NULL if number is None else _NUMBER.pack(8, number) for number in (due, turn, key)),
            _NULL if rest is None else _LENGTH.pack(len(rest)) + rest,
            _FLAG.pack(1, delay > 0),
            _LENGTH.pack(len(id)),
            id,
            _LENGTH.pack(len(body)),
            body,
        )
    )
