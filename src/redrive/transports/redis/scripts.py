"""The scripts that run on the server; each file says at its top what it takes and gives."""

from redrive.drivers.redis import Script, script


def _script(name: str) -> Script:
    return script("redrive.transports.redis", name, "shared")


ADD = _script("add")
FETCH = _script("fetch")
BEGIN = _script("begin")
SETTLE = _script("settle")
EXTEND = _script("extend")
DEPTH = _script("depth")
GOVERN = _script("govern")
LISTING = _script("listing")
PAUSE = _script("pause")
TENANTS = _script("tenants")
