"""A login is kept for one server, where nobody else can read it, and a token that opens nothing is not kept."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from redrive.access.actors import Role
from redrive.clock import SystemClock
from redrive.errors import NotAllowed, UsageError
from redrive.remote.connecting import connected
from redrive.remote.credentials import Login, Place, keep, kept, logins_file
from redrive.remote.device import DeviceCode, Issuer, renewed
from redrive.remote.service import RemoteService
from tests.cli.served import Served
from tests.cli.test_remote import server as server  # the fixture
from tests.cli.world import Shell

CODE = DeviceCode("dev", "ABCD-EFGH", "https://idp.example/device", 600, interval=5)


def test_a_token_is_kept_in_a_file_that_only_its_owner_reads(shell: Shell, server: Served) -> None:
    token = server.token(Role.OPERATOR)
    done = shell("login", "--server", server.url, "--token", "-", input=f"{token}\n")
    assert "You are a operator" in done.stderr
    assert str(logins_file()) in done.stderr
    assert token not in done.stderr
    assert stat.S_IMODE(logins_file().stat().st_mode) == 0o600
    assert shell.json("stats", "--server", server.url)["total"] == 6
    me = shell.json("whoami", "--server", server.url)
    assert (me["actor"]["role"], me["kept"]) == ("operator", "file")
    assert "not logged in" in shell("stats", "--server", "http://127.0.0.1:9", code=2).stderr
    shell("logout", "--server", server.url)
    assert "not logged in" in shell("whoami", "--server", server.url, code=2).stderr
    assert "there is no login" in shell("logout", "--server", server.url, code=1).stderr


def test_a_token_that_opens_nothing_is_not_kept(shell: Shell, server: Served) -> None:
    done = shell("login", "--server", server.url, "--token", "-", input="rdr_wrong\n", code=2)
    assert "does not let you in" in done.stderr
    assert not logins_file().exists()
    assert "is no token" in shell("login", "--server", server.url, "--token", "-", input="\n", code=2).stderr
    assert "which server?" in shell("login", code=2).stderr


def test_a_file_that_others_can_read_is_not_used(shell: Shell, server: Served) -> None:
    token = server.token(Role.VIEWER)
    shell("login", "--server", server.url, "--token", "-", input=token)
    logins_file().chmod(0o644)
    assert "can be read by others (mode 0644)" in shell("stats", "--server", server.url, code=2).stderr
    file = shell.place / "token.txt"
    file.write_text(token)
    file.chmod(0o640)
    os.environ["REDRIVE_TOKEN_FILE"] = str(file)
    assert "can be read by others" in shell("stats", "--server", server.url, code=2).stderr
    file.chmod(0o600)
    assert shell.json("stats", "--server", server.url)["total"] == 6


def test_a_server_without_an_issuer_says_that_it_takes_tokens(shell: Shell, server: Served) -> None:
    assert "no issuer that people log in with" in shell("login", "--server", server.url, code=2).stderr


def test_the_keyring_keeps_it_where_there_is_one(shell: Shell, server: Served, tmp_path: Path) -> None:
    """A keyring that is a file, as the library lets anybody write one: that of a desktop is not there in a test."""
    (shell.place / "ring.py").write_text(
        "import json, pathlib, keyring.backend\n"
        "class Ring(keyring.backend.KeyringBackend):\n"
        "    priority = 1\n"
        f"    file = pathlib.Path({str(tmp_path / 'ring.json')!r})\n"
        "    def all(self): return json.loads(self.file.read_text()) if self.file.exists() else {}\n"
        "    def get_password(self, service, name): return self.all().get(f'{service} {name}')\n"
        "    def set_password(self, service, name, text):\n"
        "        self.file.write_text(json.dumps(self.all() | {f'{service} {name}': text}))\n"
        "    def delete_password(self, service, name):\n"
        "        found = self.all(); del found[f'{service} {name}']; self.file.write_text(json.dumps(found))\n"
    )
    more: dict[str, Any] = {"PYTHON_KEYRING_BACKEND": "ring.Ring", "PYTHONPATH": str(shell.place)}
    more["REDRIVE_SERVER"] = server.url
    token = server.token(Role.VIEWER).encode()
    assert b"in the keyring" in shell.process("login", "--token", "-", input=token, **more).stderr
    assert not logins_file().exists()
    assert json.loads(shell.process("whoami", "--json", **more).stdout)["kept"] == "keyring"
    shell.process("login", "--token", "-", "--file", input=token, **more)
    assert json.loads((tmp_path / "ring.json").read_text()) == {}
    assert json.loads(shell.process("whoami", "--json", **more).stdout)["kept"] == "file"


# -- the device flow against an issuer that says what a test wants ----------------------------------------------------


class Hurried(SystemClock):
    """Time that passes as soon as somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def elapsed(self) -> float:
        return sum(self.waits)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


class Scripted(ThreadingHTTPServer):
    """An issuer of ours: its token endpoint answers what was written down for it, the last again and again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[dict[str, str]] = []
        self.named = self.url


class _Answers(BaseHTTPRequestHandler):
    server: Scripted

    def do_GET(self) -> None:
        url = self.server.url
        self._say(200, {"issuer": self.server.named, "token_endpoint": f"{url}/token"})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        self.server.asked.append({name: values[0] for name, values in form.items()})
        answers = self.server.answers
        self._say(*(answers.pop(0) if len(answers) > 1 else answers[0]))

    def _say(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def issuer() -> Iterator[Scripted]:
    made = Scripted()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def _granted(issuer: Scripted, clock: Hurried) -> Login:
    async def asked() -> Login:
        async with httpx.AsyncClient() as client:
            asks = Issuer(client, issuer.url, "redrive-cli")
            return asks.login(await asks.granted(CODE, clock), clock)

    return asyncio.run(asked())


def _no(error: str, status: int = 400) -> tuple[int, dict[str, Any]]:
    return status, {"error": error}


def test_it_asks_as_often_as_it_may_and_slower_where_it_is_told_to(issuer: Scripted) -> None:
    given = {"access_token": "a", "refresh_token": "r", "expires_in": 60}
    issuer.answers = [_no("authorization_pending"), _no("slow_down"), _no("authorization_pending"), (200, given)]
    clock = Hurried()
    login = _granted(issuer, clock)
    assert (login.token, login.refresh_token, login.client_id) == ("a", "r", "redrive-cli")
    assert clock.waits == [5, 5, 10, 10]
    assert issuer.asked[0]["grant_type"] == "urn:ietf:params:oauth:grant-type:device_code"
    assert (issuer.asked[0]["client_id"], issuer.asked[0]["device_code"]) == ("redrive-cli", "dev")


def test_an_issuer_that_stumbles_is_asked_again_more_slowly(issuer: Scripted) -> None:
    issuer.answers = [(503, {}), (200, {"access_token": "a"})]
    clock = Hurried()
    assert _granted(issuer, clock).token == "a"
    assert clock.waits == [5, 10]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        ("access_denied", NotAllowed, "was refused on the other device"),
        ("expired_token", UsageError, "nobody typed the code in time"),
        ("authorization_pending", UsageError, "nobody typed the code in time"),
        ("invalid_client", UsageError, "gives no token: invalid_client"),
    ],
)
def test_a_login_that_is_refused_or_too_late_ends(
    issuer: Scripted, error: str, kind: type[Exception], said: str
) -> None:
    issuer.answers = [_no(error)]
    with pytest.raises(kind, match=said):
        _granted(issuer, Hurried())


def test_an_issuer_that_says_it_is_another_is_sent_nothing(issuer: Scripted) -> None:
    issuer.named = "https://elsewhere.example"
    with pytest.raises(UsageError, match="nothing was sent to it"):
        _granted(issuer, Hurried())
    assert issuer.asked == []


def test_an_expired_token_is_renewed_and_the_new_one_kept(shell: Shell, server: Served, issuer: Scripted) -> None:
    issuer.answers = [(200, {"access_token": server.token(Role.VIEWER)})]
    old = Login(token="rdr_old", refresh_token="r1", issuer=issuer.url, client_id="redrive-cli")
    assert keep(server.url, old) is Place.FILE
    assert shell.json("stats", "--server", server.url)["total"] == 6
    assert (issuer.asked[0]["grant_type"], issuer.asked[0]["refresh_token"]) == ("refresh_token", "r1")
    found = kept(server.url)
    assert found is not None
    assert (found[0].token != "rdr_old", found[0].refresh_token) == (True, "r1")
    shell("stats", "--server", server.url)
    assert len(issuer.asked) == 1


def test_a_command_outlives_more_than_one_access_token(shell: Shell, server: Served, issuer: Scripted) -> None:
    first, second = server.token(Role.VIEWER), server.token(Role.VIEWER)
    issuer.answers = [(200, {"access_token": first, "refresh_token": "r2"}), (200, {"access_token": second})]
    keep(server.url, Login(token="rdr_old", refresh_token="r1", issuer=issuer.url, client_id="redrive-cli"))

    async def look_on() -> list[int | None]:
        async with connected(server.url, None) as http:
            before = (await RemoteService(http).stats()).total
            await asyncio.to_thread(server.do, server.tokens.revoke(first.split("_")[1]))
            return [before, (await RemoteService(http).stats()).total]

    assert asyncio.run(look_on()) == [6, 6]
    assert [form["refresh_token"] for form in issuer.asked] == ["r1", "r2"]


def test_two_commands_at_once_redeem_a_refresh_token_once(shell: Shell, server: Served, issuer: Scripted) -> None:
    issuer.answers = [(200, {"access_token": "new", "refresh_token": "r2"}), _no("invalid_grant")]
    keep(server.url, Login(token="rdr_old", refresh_token="r1", issuer=issuer.url, client_id="redrive-cli"))

    async def both() -> list[Login | None]:
        return await asyncio.gather(*(renewed(server.url, None, used="rdr_old") for _ in range(2)))

    assert [login and login.token for login in asyncio.run(both())] == ["new", "new"]
    assert [form["refresh_token"] for form in issuer.asked] == ["r1"]


def test_a_refresh_token_that_is_over_means_login(shell: Shell, server: Served, issuer: Scripted) -> None:
    issuer.answers = [_no("invalid_grant")]
    keep(server.url, Login(token="rdr_old", refresh_token="r1", issuer=issuer.url, client_id="redrive-cli"))
    assert "login` gets a token" in shell("stats", "--server", server.url, code=2).stderr
