"""The little HTTP that the harness itself speaks, so that starting a server needs no client library."""

import base64
import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

# Loopback is never behind a proxy, whatever the environment says.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(
    method: str, url: str, body: Any = None, credentials: tuple[str, str] | None = None, bearer: str | None = None
) -> str:
    """The text of the answer; an HTTP error status is raised as an OSError."""
    request = urllib.request.Request(url, method=method, headers={"Content-Type": "application/json"})
    if body is not None:
        request.data = json.dumps(body).encode()
    if credentials is not None:
        token = base64.b64encode(":".join(credentials).encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    if bearer is not None:
        request.add_header("Authorization", f"Bearer {bearer}")
    with _opener.open(request, timeout=30) as response:
        text: str = response.read().decode()
        return text


def submit(url: str, form: Mapping[str, str]) -> str:
    """The text of the answer to a form that was sent."""
    with _opener.open(url, urllib.parse.urlencode(form).encode(), timeout=30) as response:
        text: str = response.read().decode()
        return text


def get(url: str, credentials: tuple[str, str] | None = None) -> Any:
    """The JSON found at a URL."""
    return json.loads(call("GET", url, credentials=credentials))
