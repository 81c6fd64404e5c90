"""How a group stands, in one word: what people said of it or, if nobody did, how it goes on by itself.

Console, API and command line say the same word of a group, because they all take it from here.
"""

from __future__ import annotations

from enum import StrEnum

from redrive.forensics.marks import GroupState
from redrive.forensics.series import Trend


class Standing(StrEnum):
    """One of GroupState or, of a group that is open, one of Trend."""

    MUTED = "muted"
    FIXED = "fixed"
    DEPLOYED = "deployed"
    REGRESSED = "regressed"
    NEW = "new"
    GROWING = "growing"
    STEADY = "steady"
    QUIET = "quiet"


def standing_of(state: GroupState, trend: Trend) -> Standing:
    """The one word of a group."""
    return Standing(trend.value if state is GroupState.OPEN else state.value)
