"""A command on a laptop: the same words and exit codes as on a store, and a token that goes to one server only."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from redrive.access.actors import Role, Scope
from redrive.admin.tls import Tls
from redrive.model import State
from tests.admin.test_tls import certificate
from tests.cli.served import Served, served
from tests.cli.world import Shell, World, letter
from tests.servers.waiting import wait_until

SHOP = """
from redrive import Redrive
app = Redrive()

@app.handler("orders")
async def charge(order: dict) -> None:
    raise ValueError(order["password"])
"""


@pytest.fixture
def server(shell: Shell, template: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server somewhere else. Nothing of whoever runs the tests is read or written."""
    shell.kept = tmp_path_factory.mktemp("kept")
    os.environ["XDG_CONFIG_HOME"] = str(shell.place / "config")
    os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    (shell.kept / "redrive.db").write_bytes((template.shell.place / "redrive.db").read_bytes())
    with served(shell.kept / "redrive.db") as running:
        yield running


def _as(server: Served, role: Role, **more: object) -> None:
    os.environ["REDRIVE_TOKEN"] = server.token(role, **more)  # type: ignore[arg-type]


# -- who is asked ------------------------------------------------------------------------------------------------


def test_an_option_the_environment_and_a_file_name_the_server(shell: Shell, server: Served) -> None:
    _as(server, Role.VIEWER)
    assert shell.json("--server", server.url, "stats")["total"] == 6
    assert shell.json("stats", "--server", f"{server.url}/")["total"] == 6
    (shell.place / "redrive.toml").write_text(f'server = "{server.url}"\n')
    assert shell.json("stats")["total"] == 6
    (shell.place / "redrive.toml").unlink()
    os.environ["REDRIVE_SERVER"] = server.url
    assert shell.json("stats")["total"] == 6
    assert "no redrive.db" in shell("stats", "--store", "sqlite:///redrive.db", code=2).stderr
    assert "give one of them" in shell("stats", "--store", "sqlite:///x.db", "--server", server.url, code=2).stderr


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nowhere", "write its address"),
        ("ftp://127.0.0.1", "write its address"),
        ("http://", "write its address"),
        ("http://redrive.example.org", "is not encrypted"),
        ("https://me:rdr_secret@127.0.0.1", "nothing else in it"),
        ("http://127.0.0.1:99999", "write its address"),
        ("https://re drive", "write its address"),
        ("https://redrive\x01.example", "write its address"),
        ("https://xn--ä..example", "is no address"),
    ],
)
def test_an_address_that_would_show_the_token_is_refused(shell: Shell, address: str, said: str) -> None:
    os.environ["REDRIVE_TOKEN"] = "rdr_secret"
    done = shell("stats", "--server", address, code=2)
    assert said in " ".join(done.stderr.split())
    assert "rdr_secret" not in done.stderr.replace(repr(address), "")


@pytest.mark.parametrize(
    "words",
    [("run", "shop:app"), ("send", "orders", "1"), ("keys", "rotate"), ("config",), ("tickets", "worker"), ("init",)],
)
def test_what_works_beside_a_store_says_so(shell: Shell, words: tuple[str, ...]) -> None:
    said = f"redrive {words[0]} takes no --server"
    assert said in shell("--server", "http://127.0.0.1:9", *words, code=2).stderr
    assert said in shell(words[0], "--server", "http://127.0.0.1:9", *words[1:], code=2).stderr


def test_pruning_the_trail_is_done_beside_the_store(shell: Shell) -> None:
    done = shell("audit", "prune", "--older-than", "1d", "--server", "http://127.0.0.1:9", code=2)
    assert "audit prune takes no --server" in done.stderr


class Between(ThreadingHTTPServer):
    """What stands between us and a server: writes down what it was asked for, and says that nobody answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Nobody)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: list[str] = []


class _Nobody(BaseHTTPRequestHandler):
    server: Between

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(502)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *words: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def between() -> Iterator[Between]:
    made = Between()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_no_proxy_is_handed_a_token_that_is_not_encrypted(
    shell: Shell, server: Served, between: Between, name: str
) -> None:
    _as(server, Role.VIEWER)
    os.environ[name] = between.url
    assert shell.json("stats", "--server", server.url)["total"] == 6
    assert between.asked == []


@pytest.mark.parametrize("proxy", ["ftp://proxy.example", "http://[::", "socks5://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_said(shell: Shell, server: Served, proxy: str) -> None:
    _as(server, Role.VIEWER)
    os.environ["ALL_PROXY"] = proxy
    assert "unset HTTPS_PROXY" in shell("stats", "--server", "https://redrive.example", code=2).stderr
    assert shell.json("stats", "--server", server.url)["total"] == 6  # which no proxy is asked for


def test_a_proxy_whose_server_is_away_is_exit_code_3(shell: Shell, between: Between) -> None:
    os.environ["REDRIVE_TOKEN"] = "rdr_x"
    assert "is unavailable" in shell("stats", "--server", between.url, code=3).stderr


# -- what is refused ---------------------------------------------------------------------------------------------


def test_a_server_that_is_away_is_exit_code_3(shell: Shell) -> None:
    os.environ["REDRIVE_TOKEN"] = "rdr_x"
    assert "is unavailable" in shell("stats", "--server", "http://127.0.0.1:9", code=3).stderr
    assert "is unavailable" in shell("replay", "--all", "--yes", "--server", "http://127.0.0.1:9", code=3).stderr


def test_no_token_a_wrong_one_and_one_that_expired_say_how_to_log_in(shell: Shell, server: Served) -> None:
    os.environ["REDRIVE_SERVER"] = server.url
    assert "`redrive login`, or give a token" in shell("stats", code=2).stderr
    over = server.token(Role.ADMIN, expires_at=datetime.now(UTC) + timedelta(seconds=2))
    wait_until(lambda: server.do(server.tokens.check(over)) is None, "the token to expire")
    for token in ("rdr_unknownids_" + "x" * 43, over):
        os.environ["REDRIVE_TOKEN"] = token
        done = shell("stats", code=2)
        assert "does not let you in" in done.stderr
        assert "`redrive login` gets a token" in done.stderr
        assert token not in done.stderr
    os.environ["REDRIVE_TOKEN"] = "two words"
    assert "is no token" in shell("stats", code=2).stderr


def test_a_role_that_is_too_low_is_named(shell: Shell, server: Served) -> None:
    os.environ["REDRIVE_SERVER"] = server.url
    _as(server, Role.VIEWER)
    assert "needs the role operator" in shell("archive", "m1", code=2).stderr
    assert "needs the role admin" in shell("audit", code=2).stderr
    _as(server, Role.OPERATOR)
    assert "needs the role admin" in shell("purge", "--state", "resolved", "--yes", code=2).stderr
    _as(server, Role.ADMIN)
    assert "may not see secrets" in shell("export", code=2).stderr
    assert "may not see secrets" in shell("show", "m1", "--unmask", "--reason", "x", code=2).stderr
    made = ("token", "create", "--role", "viewer", "--name", "x", "--unmask")
    assert "may not see secrets" in shell(*made, code=2).stderr
    assert shell.state_of("m1") is State.PENDING


def test_what_is_out_of_scope_does_not_exist(shell: Shell, server: Served) -> None:
    os.environ["REDRIVE_SERVER"] = server.url
    _as(server, Role.ADMIN, scope=Scope(sources=("mails",)), unmask=True)
    assert {found["source"] for found in shell.json("letters")["letters"]} == {"mails"}
    assert "no letter 'm1'" in shell("show", "m1", code=1).stderr
    assert "no letter 'm1'" in shell("retry", "m1", code=1).stderr
    assert "unknown source 'orders'" in shell("replay", "--source", "orders", "--yes", code=2).stderr
    exported = shell("export").stdout.splitlines()
    assert {json.loads(line)["letter"]["message"]["source"] for line in exported} == {"mails"}
    assert "a part of it" in shell("doctor", code=2).stderr
    assert shell.json("purge", "--all", "--yes") == {"purged": 2, "kept": 0}
    assert shell.ask(lambda service: service.stats()).total == 4


def test_an_import_out_of_scope_is_refused(shell: Shell, server: Served) -> None:
    os.environ["REDRIVE_SERVER"] = server.url
    _as(server, Role.ADMIN, unmask=True)
    shell("export", "all.jsonl")
    assert stat.S_IMODE((shell.place / "all.jsonl").stat().st_mode) == 0o600
    assert shell.json("import", "all.jsonl") == {"imported": 6}
    _as(server, Role.ADMIN, scope=Scope(sources=("mails",)))
    assert "cannot be recorded" in shell("import", "all.jsonl", code=2).stderr
    (shell.place / "bad.jsonl").write_text("{}\n")
    assert "line 1 of bad.jsonl is not a letter" in shell("import", "bad.jsonl", code=2).stderr


# -- TLS ---------------------------------------------------------------------------------------------------------


def test_a_certificate_of_ones_own_authority_is_named_or_refused(shell: Shell, template: World) -> None:
    certificate(shell.place, "mine")
    file = shell.place / "kept.db"
    file.write_bytes((template.shell.place / "redrive.db").read_bytes())
    with served(file, Tls(shell.place / "cert.pem", shell.place / "key.pem")) as server:
        assert server.url.startswith("https://")
        _as(server, Role.VIEWER)
        os.environ["REDRIVE_SERVER"] = server.url
        done = shell("stats", code=2)
        assert "is not to be trusted" in done.stderr
        assert "--ca-file" in done.stderr
        assert shell.json("stats", "--ca-file", "cert.pem")["total"] == 6
        assert "key.pem" in shell("stats", "--ca-file", "key.pem", code=2).stderr
        assert "No such file" in shell("stats", "--ca-file", "none.pem", code=2).stderr
        os.environ["REDRIVE_CA_FILE"] = "cert.pem"
        assert shell.json("stats")["total"] == 6


# -- what goes on there --------------------------------------------------------------------------------------------


def test_a_replay_runs_on_the_server_and_ctrl_c_leaves_it_running(shell: Shell, server: Served) -> None:
    os.environ["REDRIVE_SERVER"] = server.url
    _as(server, Role.OPERATOR)
    words = ("replay", "--source", "orders", "--yes", "--rate", "1/m")
    following = subprocess.Popen(
        [sys.executable, "-m", "redrive", *words], cwd=shell.place, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    shell.started.append(following)
    wait_until(lambda: shell.queued().get("orders") == 1, "a letter to be sent")
    following.send_signal(signal.SIGINT)
    _, said = following.communicate(timeout=60)
    assert following.returncode == 130
    assert b"runs on the server, and goes on there" in said
    [report] = shell.json("replays")["replays"]
    assert report["replay"]["state"] == "running"
    assert shell.json("replays", "cancel", report["replay"]["id"])["replay"]["state"] == "cancelled"


def test_a_message_is_debugged_masked_or_as_it_is(shell: Shell, server: Served) -> None:
    dead = letter(50, body=b'{"password": "hunter2"}')
    shell.keep([dead])
    (shell.place / "shop.py").write_text(SHOP)
    words = ("debug", dead.id, "--handler", "shop:charge", "--server", server.url, "--pytest")
    _as(server, Role.VIEWER)
    assert "The body is redacted" in shell(*words, "test_masked.py").stderr
    assert "hunter2" not in (shell.place / "test_masked.py").read_text()
    _as(server, Role.VIEWER, unmask=True)
    assert "redacted" not in shell(*words, "test_raw.py", "--reason", "ticket 7").stderr
    assert "hunter2" in (shell.place / "test_raw.py").read_text()
    ran = shell.process("debug", dead.id, "--handler", "shop:charge", "--server", server.url, input=b"c\nq\n", code=1)
    assert b"ValueError: hunter2" in ran.stdout + ran.stderr
    trail = shell.ask(lambda service: service.audit())
    assert {act["reason"] for act in trail if act["action"] == "unmask"} == {"ticket 7", "redrive debug"}


def test_who_sees_masks_edits_only_what_is_changed(shell: Shell, server: Served) -> None:
    dead = letter(51, body=b'{"n": 1, "password": "hunter2"}')
    shell.keep([dead])
    os.environ |= {"REDRIVE_SERVER": server.url, "EDITOR": "sed -i -e 's/1/2/'"}
    _as(server, Role.OPERATOR)
    done = shell("edit", dead.id, "--yes", "--reason", "the number")
    assert "hunter2" not in done.stdout + done.stderr
    found = shell.ask(lambda service: service.find(dead.id))
    assert json.loads(found.message.body) == {"n": 2, "password": "hunter2"}
    os.environ["EDITOR"] = "sed -i -e 's/password/secret/'"
    assert "leave that part as it is" in shell("edit", dead.id, "--yes", code=1).stderr
    shell("edit", dead.id, "--undo")
    assert shell.ask(lambda service: service.find(dead.id)).message.body == dead.message.body


def test_a_script_runs_here_and_is_applied_and_undone_there(shell: Shell, server: Served) -> None:
    os.environ["REDRIVE_SERVER"] = server.url
    (shell.place / "fix.py").write_text("def repair(message):\n    return b'{\"n\": 2}'\n")
    words = ("repair", "fix.py", "--source", "orders", "--yes")
    _as(server, Role.OPERATOR)
    assert "needs the role admin" in shell(*words, code=2).stderr
    _as(server, Role.ADMIN, unmask=True)
    done = shell.json(*words)
    assert (done["changed"], done["state"]) == (3, "applied")
    assert shell.ask(lambda service: service.find("m1")).message.body == b'{"n": 2}'
    shown = shell.json("repair", "--show", done["id"])
    assert len(shown["letters"]) == 3
    assert shell.json("repair", "--undo", done["id"], "--yes")["restored"] == 3
    assert shell.ask(lambda service: service.find("m1")).message.body == b'{"n": 1}'
