"""What `redrive doctor` looks at: the broker of the files, and whether its queues are as they should be."""

from __future__ import annotations

from redrive.app import Redrive
from redrive.doctor.broker import topology_findings
from redrive.doctor.findings import Finding, failure, warning
from redrive.errors import RedriveError
from redrive.systems.files.settings import FilesSettings
from redrive.systems.files.worker import examined

_ABOUT = "files.url"


async def examine(app: Redrive) -> list[Finding]:
    """Nothing is made on the broker."""
    files = app.settings.of(FilesSettings)
    try:
        found = await examined(files)
    except RedriveError as error:
        return [failure(_ABOUT, str(error), f"start it, or correct `{_ABOUT}`")]
    makes, where = "`redrive files import` makes them", "`files.management`"
    return [
        *topology_findings(_ABOUT, found, makes, len(files.queues), management=where),
        *(
            warning(
                _ABOUT, f"nobody asked for this {binding}: messages come through it", "`redrive files diff`; unbind it"
            )
            for binding in found.extra
        ),
    ]
