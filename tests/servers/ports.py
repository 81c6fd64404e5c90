"""Ports on loopback that nobody else is given while this process lives."""

import random
import socket

LOOPBACK = "127.0.0.1"
# Below the kernel's ephemeral range: no outgoing connection takes the port of a server that is restarting.
CANDIDATES = range(20_000, 32_000)
_claims: dict[int, socket.socket] = {}


def claim_port() -> int:
    """A free port, kept for this process: no other test run on this machine is given the same one."""
    for _ in CANDIDATES:
        port = random.choice(CANDIDATES)
        if _claim(port):
            return port
    raise OSError(f"no free port between {CANDIDATES.start} and {CANDIDATES.stop}")


def _claim(port: int) -> bool:
    """Whether the port is now ours. The abstract socket is the lock; the kernel frees it when we end."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0redrive-servers-port-{port}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True
