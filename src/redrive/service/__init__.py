"""The one application API. HTTP, console and CLI all call it, and hold no rule of their own.

Everything shown is redacted; everything done names who did it, and is written to the audit trail.

asking.py    what every part stands on: backends asked side by side, the audit trail
sources.py   queues, workers, pauses; finding.py knows which sources there are
edits.py     letters that are edited, and taken back; repairs.py does so with a script, to many
groups.py    how groups stand, and what people say of them: fixed in a version, muted for a while
series.py    what happened over time, and the overview
planning.py  what a replay would do
service.py   letters, replays, incidents
changes.py   letters edited by their ids; tokens.py makes and revokes tokens
home.py      what a store here and a server elsewhere both offer: what the command line asks
"""

from redrive.service.groups import FixReport, GroupView
from redrive.service.home import Home
from redrive.service.planning import Plan
from redrive.service.series import Asked, Overview, SeriesView, TrendView
from redrive.service.service import ReplayReport, RetryReport, Service, Summaries, check_every
from redrive.service.sources import PauseReport, Sources

__all__ = [
    "Asked",
    "FixReport",
    "GroupView",
    "Home",
    "Overview",
    "PauseReport",
    "Plan",
    "ReplayReport",
    "RetryReport",
    "SeriesView",
    "Service",
    "Sources",
    "Summaries",
    "TrendView",
    "check_every",
]
