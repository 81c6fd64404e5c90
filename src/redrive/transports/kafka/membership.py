"""How a consumer is a member of its group: by name or without one, and for how long a silent one is waited for.

A worker that has a name (`worker` in the settings) is a static member: killed and started again within the session, it
has its partitions back at once, without a rebalance. Without a name a new member waits until the session of the dead
one is over.

    named ──another process joins under our name──▶ unnamed      session too short for the broker ─▶ twice as long
"""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import sha256
from typing import Any

_SHORTEST, _LONGEST = timedelta(seconds=6), timedelta(minutes=5)
"""What brokers allow by default, and what they have to allow at the most: it is the longest pause between two polls."""
_SESSION = timedelta(seconds=10)
"""Heartbeats come each second, from a thread of the driver that no handler holds up."""
_OTHER = re.compile(r"[^a-zA-Z0-9._-]")
_MOST = 200  # characters; brokers take 249


class Membership:
    """The member of one source. Changes when a broker refuses it as it is.

    worker   the name of the worker; empty: it has none
    """

    def __init__(self, worker: str, source: str, lease: timedelta) -> None:
        self.name = member_name(worker, source) if worker else None
        self._session = max(min(lease, _SESSION), _SHORTEST)

    def settings(self) -> dict[str, Any]:
        """What the driver is told."""
        named = {} if self.name is None else {"group.instance.id": self.name}
        return {"session.timeout.ms": int(self._session.total_seconds() * 1000), **named}

    def lose_name(self) -> str | None:
        """Go on without a name, because another process has it: that name."""
        name, self.name = self.name, None
        return name

    def lengthen(self) -> bool:
        """Ask for a longer session; False: no broker allows more."""
        if self._session >= _LONGEST:
            return False
        self._session = min(self._session * 2, _LONGEST)
        return True


def member_name(worker: str, source: str) -> str:
    """One for each source, because each has a consumer of its own; different names stay different."""
    plain = f"{worker}.{source}"
    name = _OTHER.sub("-", plain)
    return name if name == plain and len(name) <= _MOST else f"{name[:_MOST]}-{sha256(plain.encode()).hexdigest()[:8]}"
