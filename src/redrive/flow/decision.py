"""What was decided of one delivery: from `receive`, which decides, to `settle`, which carries it out."""

from __future__ import annotations

from msgspec import Struct

from redrive.model import Failure, Outcome
from redrive.transports.base import Delivery


class Decision(Struct, frozen=True, gc=False):
    """A delivery and its outcome."""

    delivery: Delivery
    outcome: Outcome
    failure: Failure | None = None
    seconds: float = 0.0  # that its attempt took
    is_spent: bool = False  # it is given back, and its attempt stays counted
