"""What a browser carries: a login that is under way, and the proof that a write is our page's own.

What has to be the same on the way to the identity provider and back (PKCE, state, nonce) is in a cookie that only this
server sets and reads, so that no store is written to before somebody is known. Whoever changes it in their own browser
can only spoil their own login.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from redrive.access.claims import LoginRefused
from redrive.untrusted import UNREADABLE

_LONGEST = 4000
_LONGEST_PATH = 500


class Login(Struct, frozen=True):
    """What is kept until the browser comes back."""

    state: str
    nonce: str
    verifier: str
    to: str  # where the browser goes then: a path of ours

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def address(self, endpoint: str, client_id: str, back: str, scopes: tuple[str, ...]) -> str:
        """Where the browser is sent to sign in."""
        asked = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": back,
            "scope": " ".join(scopes),
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    def packed(self) -> str:
        """As a cookie has it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).rstrip(b"=").decode()


def new_login(to: str) -> Login:
    """A login that nobody can guess, which ends at that path."""
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return Login(state, nonce, verifier, local_path(to))


def returned(cookie: str | None, state: str) -> Login:
    """The login that this browser began; LoginRefused if it did not begin the one that comes back."""
    login = _unpacked(cookie or "")
    if login is None or not hmac.compare_digest(login.state.encode(), state.encode()):
        raise LoginRefused("this login was not begun in this browser, or too long ago: sign in again")
    return login


def csrf_of(id: str) -> str:
    """What a page of ours sends with every write: made of the session's id, which no other site can read."""
    return base64.urlsafe_b64encode(hashlib.sha256(b"csrf:" + id.encode()).digest()).rstrip(b"=").decode()


def local_path(path: str) -> str:
    """A path of this server; its beginning, if it is anything else."""
    fine = path.isascii() and path.isprintable() and "\\" not in path and len(path) <= _LONGEST_PATH
    return path if fine and path.startswith("/") and not path.startswith("//") else "/"


def _unpacked(cookie: str) -> Login | None:
    try:
        raw = base64.urlsafe_b64decode(cookie[:_LONGEST] + "=" * (-len(cookie) % 4))
        login = msgspec.json.decode(raw, type=Login)
    except (ValueError, *UNREADABLE):
        return None
    return Login(login.state, login.nonce, login.verifier, local_path(login.to)) if login.state else None
