"""What `redrive doctor` looks at: whether letters can go back to FastStream's handlers."""

from __future__ import annotations

from redrive.app import Redrive
from redrive.doctor.findings import Finding, warning
from redrive.integrations.checking import away, lost_ways, samples_of, ways_back
from redrive.integrations.faststream.reading import KIND
from redrive.integrations.faststream.system import system

_WORDS = {b"queue": "amqp", b"topic": "kafka", b"list": "redis", b"stream": "redis", b"channel": "redis"}
_LOSES = {
    b"list": "a worker takes a message out of it before it handles it",
    b"channel": "only who listens at that moment gets a message",
}


async def examine(app: Redrive) -> list[Finding]:
    """Nothing is changed."""
    found = await lost_ways(app, "faststream", "faststream+amqp")
    for name in ways_back(app, system.transports):
        found += await away(app, name)
        found += await _mismatched(app, name)
    return found


async def _mismatched(app: Redrive, name: str) -> list[Finding]:
    about, found = f"transports.{name}", []
    url = app.settings.transports[name]
    places = {(letter.message.source, letter.message.header(KIND) or b"") for letter in await samples_of(app, name)}
    for source, kind in sorted(places):
        if kind in _LOSES:
            text = f"{source!r} is a {kind.decode()} of Redis: {_LOSES[kind]}, so one that is killed loses it"
            found.append(warning(about, text, "use a stream with a consumer group, which acknowledges"))
        if kind in _WORDS and not url.startswith(f"faststream+{_WORDS[kind]}"):
            text = f"letters of {source!r} came from a {kind.decode()}, and this leads elsewhere"
            found.append(warning(about, text, "give each broker's middleware a `transport=` of its own"))
    return found
