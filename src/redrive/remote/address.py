"""Which addresses a token is sent to: HTTPS, or this machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from redrive.errors import UsageError

_HINT = "write its address, such as https://redrive.example.org"


def checked(server: str) -> str:
    """The address without a slash at its end. UsageError for what is none, or would show the token to others."""
    try:
        server = server.strip()
        if not server.isprintable() or " " in server:
            raise ValueError("it has characters that no address has")
        parts = urlsplit(server)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"--server {server!r}: {error}; {_HINT}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"--server {server!r}: {_HINT}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            f"--server: {_HINT}, and nothing else in it; a token is kept by redrive login, or in REDRIVE_TOKEN"
        )
    if parts.scheme == "http" and not _is_this_machine(host):
        raise UsageError(
            f"--server {server!r} is not encrypted, and your token would be read on its way: write https://, or reach "
            f"the server through a tunnel as http://127.0.0.1:PORT"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
