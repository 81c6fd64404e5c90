"""Numbers that only grow within a process and that no other process makes: the order in which letters came."""

from __future__ import annotations

import os
import struct
import time

from bson.objectid import ObjectId


class Numbers:
    """Makes numbers of twelve bytes, as an ObjectId: the time first, then who made it."""

    def __init__(self) -> None:
        self._mine = os.urandom(4)
        self._last = 0

    def next(self) -> ObjectId:
        self._last = max(self._last + 1, time.time_ns())
        return ObjectId(struct.pack(">Q", self._last) + self._mine)

    def token(self) -> str:
        """Such a number as a text."""
        return str(self.next())
