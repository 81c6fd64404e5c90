"""Words that follow a key in sentences and in code, where a secret would not."""

from __future__ import annotations

PROSE = frozenset(
    """
    a accepted again all already also an and any are argument as assert at authentication await be been being
    between bool boolean break but by bytes can cannot char column contain contains continue could del dict did
    do does empty enter error expected expired failed field float for found from given had has have header here
    how if in incorrect input int integer invalid is it its lambda least length line list locked long lookup
    mandatory match matches may mismatch missing more must name needed neither never new no none nor not null
    object of off ok old on only optional or our pass please policy print raise read refused rejected required
    reset return see self set shall short should some still str string super text than that the their then there
    this throw to too try two type undefined unexpected unknown unset use value varchar was were what when which
    while will with without wrong yes yield your
    """.split()
)
