"""What proves that a message is ours, and what this process knows of messages that come again."""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from typing import Any

from redrive.transports.sqs.queues import Queue

LONGEST = timedelta(hours=12)
"""A message that was received is hidden for so long, at most, however often that is renewed."""
_MOST_KNOWN = 100_000


class Lease:
    """A message that was received, until then.

    Once it is settled nobody has a say any more. SQS itself may obey an old receipt whose message somebody else has by
    now, so we have to know.
    """

    __slots__ = ("count", "id", "is_copied", "is_settled", "queue", "receipt", "since", "system", "until")

    def __init__(self, queue: Queue, record: dict[str, Any], since: float, until: float) -> None:
        self.queue = queue
        self.id = str(record.get("MessageId") or "")
        self.receipt = str(record.get("ReceiptHandle") or "")
        self.system: dict[str, Any] = record.get("Attributes") or {}
        self.count = _number(self.system.get("ApproximateReceiveCount"))
        self.since = since
        self.until = until
        self.is_copied = False  # a copy that takes its place is durable
        self.is_settled = False

    def is_ours(self, now: float) -> bool:
        return not self.is_settled and now < self.until

    def left(self, now: float) -> float:
        """Seconds for which it may still be hidden."""
        return LONGEST.total_seconds() - (now - self.since) - 1


class Known:
    """How often messages that stay in their place were received without an attempt, or settled by us.

    SQS counts only how often each was received. What another process knows is lost with it: such a receive counts.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def of(self, id: str) -> tuple[int, int]:
        """Receives that were no attempt, and receives that were settled."""
        return self._found.get(id, (0, 0))

    def settled(self, id: str, *, untried: bool) -> None:
        no_attempt, settled = self._found.pop(id, (0, 0))
        self._found[id] = (no_attempt + untried, settled + 1)
        while len(self._found) > _MOST_KNOWN:
            self._found.popitem(last=False)

    def forget(self, id: str) -> None:
        self._found.pop(id, None)


def _number(said: Any) -> int:
    text = str(said or "")
    return int(text) if text.isdecimal() and 0 < len(text) < 10 else 1
