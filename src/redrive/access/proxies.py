"""HTTP clients that carry tokens and secrets: what is not encrypted goes to this machine, and through no proxy.

Plain HTTP is asked of loopback only. A proxy that the environment names for it (`http_proxy`, `ALL_PROXY`) would be
handed the token in clear text, on another machine; HTTPS goes through one as through a tunnel.
"""

from __future__ import annotations

from typing import Any

from redrive.errors import ConfigError, MissingExtra

try:
    import httpx
except ImportError as error:
    raise MissingExtra("asking a server", "remote") from error


def client_for(address: str, **given: Any) -> httpx.AsyncClient:
    """A client for the server at that address. ConfigError if the environment names a proxy that is none."""
    try:
        return httpx.AsyncClient(trust_env=not address.startswith("http://"), mounts={"http://": None}, **given)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"the proxy that the environment names cannot be used: {error}\n"
            f"Correct or unset HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY (in capitals or small letters)"
        ) from error
