"""A worker starts from MODULE:APP or says exactly why not; a message that was sent is there."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.transports.base import Delivery
from tests.admin.process import redrive
from tests.cli.world import SOON, Shell
from tests.servers.waiting import wait_until

SHOP = """
from redrive import Permanent, Policy, Redrive

app = Redrive()
empty = Redrive()
order = "not an app"

@app.handler("orders")
async def charge(order: dict) -> None:
    raise Permanent("card refused")
"""


@pytest.fixture
def shop(place: Path) -> Path:
    file = place / "shop.py"
    file.write_text(SHOP)
    return file


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shpo:app", "no module 'shpo'"),
        ("shpo:app", "did you mean 'shop'?"),
        ("shop:ap", "'shop' has no 'ap': did you mean shop:app?"),
        ("shop:order", "shop:order is a str, not a Redrive app: did you mean shop:app?"),
        ("shop.py:app", "name the module: shop:app"),
        ("./shop.py", "name the module: shop:app"),
        ("broken", "cannot be imported: RuntimeError: no key (broken.py:3)"),
        ("needy:app", "cannot be imported: No module named 'nothing_like_it'"),
        ("bare:app", "it has no Redrive app"),
    ],
)
def test_an_app_that_cannot_be_run_says_why_in_one_line(shell: Shell, shop: Path, target: str, said: str) -> None:
    shop.with_name("broken.py").write_text("import os\n\nraise RuntimeError('no key')\n")
    shop.with_name("needy.py").write_text("import nothing_like_it\n")
    shop.with_name("bare.py").write_text("")
    done = shell("run", target, code=2).stderr.replace(f"{shop.parent}/", "")
    assert done.startswith("Error: ")
    assert said in done


def test_an_app_without_handlers_has_nothing_to_run(shell: Shell, shop: Path) -> None:
    done = shell.process("run", "shop:empty", code=2).stderr.decode()
    assert done.splitlines()[-1].startswith("Error: this app has no handlers")
    assert "Traceback" not in done


def test_a_worker_buries_what_fails_and_ends_cleanly(shell: Shell, shop: Path) -> None:
    id = shell("send", "orders", '{"id": 7}').stdout.strip()
    worker = shell.start("run", "shop", "--grace", "2s")
    wait_until(lambda: bool(shell.json("stats")["states"]), "the letter", timedelta(seconds=SOON))
    worker.send_signal(signal.SIGINT)
    logged = [json.loads(line) for line in worker.communicate(timeout=SOON)[1].splitlines()]
    assert worker.returncode == 0
    assert {"worker_started", "message_buried", "worker_stopped"} <= {line["event"] for line in logged}
    assert shell.json("show", id)["error_message"] == "card refused"


def test_the_store_that_was_said_is_the_one_that_is_used(shell: Shell, shop: Path) -> None:
    shell("send", "orders", "{}", "--store", "sqlite:///other.db")
    worker = shell.start("--store", "sqlite:///other.db", "run", "shop:app", "--no-upkeep")
    states = ("stats", "--store", "sqlite:///other.db")
    wait_until(lambda: bool(shell.json(*states)["states"]), "the letter", timedelta(seconds=SOON))
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=SOON)
    assert worker.returncode == 0
    assert not shop.with_name("redrive.db").exists()


# -- send --------------------------------------------------------------------------------------------------------


def _received(shell: Shell, source: str = "orders") -> Delivery:
    return shell.ask(lambda service: service.app.transport().receive(source, 1))[0]


def test_everything_that_can_be_said_of_a_message_travels(shell: Shell) -> None:
    words = "--id a1 --key k --tenant acme --correlation-id c9 --priority 3 --ttl 10m --after a0"
    headers = ("--header", "x=1", "--header", "x=2=3")
    assert shell("send", "orders", "héllo", *words.split(), *headers).stdout == "a1\n"
    message = _received(shell).message
    assert (message.id, message.body, message.key, message.tenant) == ("a1", "héllo".encode(), b"k", "acme")
    assert (message.correlation_id, message.priority) == ("c9", 3)
    assert message.headers == (("x", b"1"), ("x", b"2=3"), ("redrive-after", b"a0"))
    assert message.expires_at is not None
    assert message.expires_at - message.enqueued_at == timedelta(minutes=10)


def test_a_body_from_stdin_or_a_file_is_sent_to_the_byte(shell: Shell, place: Path) -> None:
    shell.process("send", "orders", "-", input=b"\xff\x00\n")
    assert _received(shell).message.body == b"\xff\x00\n"
    place.joinpath("body.bin").write_bytes(b"\xfe\r\n")
    shell("send", "mails", "--file", "body.bin")
    assert _received(shell, "mails").message.body == b"\xfe\r\n"


def test_the_id_is_for_programs_too(shell: Shell) -> None:
    assert shell.json("send", "orders", "x", "--id", "a1") == {"id": "a1", "source": "orders"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("orders",), "one of them"),
        (("orders", "x", "--file", "shop.py"), "one of them"),
        (("orders", "x", "--header", "novalue"), "name=value"),
        (("orders", "x", "--ttl", "5"), "with a unit"),
        (("", "x"), "not empty"),
        (("orders", "x", "--store", "sqlite:///nowhere/x.db"), "does its directory exist"),
        (("oders", "x", "--app", "shop:app"), "did you mean 'orders'?"),
    ],
)
def test_what_cannot_be_sent_is_not_sent(shell: Shell, shop: Path, words: tuple[str, ...], said: str) -> None:
    done = shell("send", *words, code=None)
    assert said in done.stderr
    assert done.exit_code == (3 if "nowhere" in str(words) else 2)


def test_a_queue_in_memory_would_lose_it(shell: Shell) -> None:
    done = shell.process("send", "orders", "x", code=2, REDRIVE_TRANSPORTS_DEFAULT="memory://")
    assert b"nobody would get the message" in done.stderr


def test_a_message_that_is_too_large_is_refused(shell: Shell) -> None:
    done = shell.process("send", "orders", "x" * 2000, code=2, REDRIVE_BODY_LIMIT="1kib")
    assert b"over the limit of 1,024" in done.stderr


def test_sending_through_an_app_uses_its_sources(shell: Shell, shop: Path) -> None:
    shell("send", "orders", "{}", "--app", "shop:app")
    assert shell.queued() == {"orders": 1}


async def test_a_worker_can_be_scraped(shop: Path) -> None:
    async with redrive(shop.parent, "run", "shop:app", "--metrics-port", "0") as worker:
        url = (await worker.line(r"metrics +(http://\S+)/metrics"))[1]
        text = await asyncio.to_thread(_fetched, f"{url}/metrics")
        assert "redrive_build_info" in text
        assert '"status":"ok"' in await asyncio.to_thread(_fetched, f"{url}/healthz")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(_fetched, f"{url}/api/letters")
        assert await worker.end(signal.SIGINT) == 0


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SOON) as answer:
        return str(answer.read().decode())
