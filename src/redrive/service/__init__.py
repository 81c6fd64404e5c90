"""The one application API. HTTP, console and CLI all call it, and hold no rule of their own.

Everything shown is redacted; everything done names who did it, and is written to the audit trail.

asking.py    what every part stands on: backends asked side by side, the audit trail
sources.py   queues, workers, pauses; finding.py knows which sources there are
edits.py     letters that are edited, and taken back; repairs.py does so with a script, to many
groups.py    how groups stand, and what people say of them: fixed in a version, muted for a while
series.py    what happened over time, and the overview
letters.py   what is seen of letters
replaying.py replays; planning.py says what one would do, ledger.py finds lines of one by a text
audit.py     the trail, read and proven
service.py   acts on many letters, incidents, and who sees which part (seen.py)
changes.py   letters edited by their ids; tokens.py makes and revokes tokens
home.py      what a store here and a server elsewhere both offer: what the command line asks
"""

from redrive.service.asking import check_every
from redrive.service.groups import FixReport, GroupView
from redrive.service.home import Home
from redrive.service.letters import Summaries
from redrive.service.planning import Plan
from redrive.service.replaying import ReplayReport, RetryReport
from redrive.service.series import Asked, Overview, SeriesView, TrendView
from redrive.service.service import Service
from redrive.service.sources import PauseReport, Sources, SourceView

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
    "SourceView",
    "Sources",
    "Summaries",
    "TrendView",
    "check_every",
]
