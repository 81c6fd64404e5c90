"""A small identity provider: a real HTTP server that signs tokens; a test rotates, breaks, slows or hides its keys."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from joserfc import jws, jwt
from joserfc.jwk import ECKey, RSAKey

from redrive.config.settings import Oidc

AUDIENCE, CONSOLE = "redrive", "the-console"
Answer = tuple[int, Any]


class SmallIssuer:
    """Signs what it is told to. `answers` replaces what a path answers; a shut `gate` holds every answer up."""

    def __init__(self) -> None:
        self.keys: dict[str, RSAKey | ECKey] = {}
        self.rotate("first")
        self.answers: dict[str, Callable[[], Answer]] = {}
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.is_asked = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Answer, at the same address as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Be away."""
        self.gate.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def rotate(self, id: str) -> None:
        """Sign with a new key; those before are thrown away."""
        self.keys = {id: _key(id)}

    def settings(self, **more: Any) -> Oidc:
        return Oidc(issuer=self.url, audience=AUDIENCE, client_id=CONSOLE, cli_client_id="the-cli", **more)

    def claims(self, **more: Any) -> dict[str, Any]:
        """Those of an operator; None takes one away."""
        now = int(time.time())
        base = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "7",
            "iat": now,
            "exp": now + 300,
            "preferred_username": "olaf",
            "roles": ["redrive-operator"],
        }
        return {name: value for name, value in (base | more).items() if value is not None}

    def token(self, header: dict[str, Any] | None = None, key: Any = None, **claims: Any) -> str:
        """A token, right but for what a test changes."""
        id, own = next(iter(self.keys.items()))
        made = {"alg": "RS256", "kid": id, **(header or {})}
        return jwt.encode(
            {name: value for name, value in made.items() if value is not None},
            self.claims(**claims),
            key or own,
            algorithms=[made["alg"]],
        )

    def signed(self, claims: str) -> str:
        """A token of claims that no library would write."""
        id, own = next(iter(self.keys.items()))
        return jws.serialize_compact({"alg": "RS256", "kid": id}, claims, own, algorithms=["RS256"])

    def unsigned(self, **claims: Any) -> str:
        """A token that nobody signed, and that says so."""
        parts = ({"alg": "none", "kid": next(iter(self.keys))}, self.claims(**claims))
        return ".".join(_encoded(json.dumps(part).encode()) for part in parts) + "."

    def signed_with_public_key(self) -> str:
        """What an attacker makes who takes the public key for a shared secret."""
        id, key = next(iter(self.keys.items()))
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": id}, self.claims()))
        return f"{signed}.{_encoded(hmac.digest(key.as_pem(private=False), signed.encode(), 'sha256'))}"

    def jwks(self) -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in self.keys.values()]}

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "device_authorization_endpoint": f"{self.url}/device",
            "revocation_endpoint": f"{self.url}/revoke",
            "end_session_endpoint": f"{self.url}/end",
            "jwks_uri": f"{self.url}/jwks",
        }

    def answer(self, path: str) -> Answer:
        if path in self.answers:
            return self.answers[path]()
        if path == "/jwks":
            return 200, self.jwks()
        return (200, self.discovery()) if path == "/.well-known/openid-configuration" else (404, {})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                issuer.is_asked.set()
                issuer.gate.wait()
                status, value = issuer.answer(self.path)
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
                issuer.forms.append({name: values[0] for name, values in parse_qs(sent).items()})
                self.do_GET()

            def log_message(self, *_: object) -> None:
                return

        return Handler


@cache
def _key(id: str) -> RSAKey:
    """Made once for all tests: it takes a while."""
    return RSAKey.generate_key(2048, {"kid": id, "use": "sig", "alg": "RS256"})


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


@contextmanager
def small_issuer() -> Iterator[SmallIssuer]:
    issuer = SmallIssuer()
    issuer.start()
    try:
        yield issuer
    finally:
        issuer.stop()
