"""A message from a server, by its HTTP API: with nothing but Python's own library, on whatever machine this is."""

from __future__ import annotations

import json
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from redrive.errors import UnknownLetter, UsageError
from redrive.forensics.carried import CarriedMessage

_PATIENCE = 30.0  # seconds
_LARGEST = 1 << 28


class _NoRedirects(HTTPRedirectHandler):
    """A token is for the server that was named, and for no other."""

    def redirect_request(self, *arguments: object) -> None:
        return None


def fetch_message(server: str, token: str, id: str) -> CarriedMessage:
    """The message of a letter of that server. UsageError says what is wrong, and never the token."""
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"--server {server!r}: write its address, such as https://redrive.example.org")
    if not token or not token.isascii() or not token.isprintable():
        raise UsageError("which token? Give it as REDRIVE_TOKEN, or with --token; `redrive token create` makes one")
    url = f"{server.rstrip('/')}/api/letters/{quote(id, safe='')}/message?reason=redrive%20debug"
    request = Request(url, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})  # noqa: S310
    try:
        with build_opener(_NoRedirects).open(request, timeout=_PATIENCE) as answer:
            return msgspec.json.decode(answer.read(_LARGEST), type=CarriedMessage)
    except HTTPError as error:
        raise _refused(error, server, id) from None
    except (URLError, OSError) as error:
        raise UsageError(f"{server} does not answer: {getattr(error, 'reason', error)}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{server} does not answer as a Redrive server does ({error}): is it one?") from error


def _refused(error: HTTPError, server: str, id: str) -> UsageError:
    try:
        said = json.loads(error.read(1 << 16))
        problem = f"{said['title']}{': ' + said['detail'] if said.get('detail') else ''}"
    except (ValueError, KeyError, TypeError, OSError):
        problem = f"HTTP {error.code}: is it the address of a Redrive server?"
    if error.code == 404 and "letter" in problem:
        return UnknownLetter(id)
    return UsageError(f"{server} refuses: {problem}")
