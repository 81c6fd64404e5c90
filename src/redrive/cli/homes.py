"""Which commands take --server, and why the others do not."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.systems.discover import systems

_LOCAL = {
    "init": "it writes files here",
    "run": "it runs your handlers beside their broker",
    "up": "it is the server",
    "demo": "it is a server of its own",
    "send": "it sends to a broker; run it where the broker can be reached",
    "collect": "it reads a broker, and writes to the store beside it",
    "keys": "the keys are the store's; run it beside the store",
    "alerts": "it tries the notifiers of this configuration; run it where the server runs",
    "alert-rules": "it prints what this version has, and asks nobody",
    "dashboard": "it prints what this version has, and asks nobody",
    "config": "it shows the configuration of this place",
    "completion": "it asks nobody; what Tab completes comes from the server that REDRIVE_SERVER names",
    "audit prune": "what removes lines of the trail runs beside the store, by whoever answers for it",
}
_SYSTEM = "a ready system works beside its own databases and brokers"


def why_not_remote(words: Sequence[str]) -> str:
    """Why a command works beside a store only; empty for one that asks a server as well."""
    for path, why in _LOCAL.items():
        if list(words[: path.count(" ") + 1]) == path.split():
            return why
    return _SYSTEM if words and words[0] in systems() else ""
