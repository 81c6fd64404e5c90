"""`redrive debug`: the handler on the message, under a debugger in a terminal, or as a test."""

from __future__ import annotations

import inspect
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from redrive.debugging.handlers import find_handler
from redrive.debugging.pytest_file import test_file as text_of_test
from redrive.errors import UsageError
from redrive.forensics.carried import carried, message_of
from redrive.forensics.redact import Redactor
from redrive.testing.handling import handle
from tests.cli.world import Shell
from tests.debugging.conftest import dead

_PATIENCE = 120.0


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, place: Path, *words: str) -> None:
        self._end, theirs = pty.openpty()
        environ = {**os.environ, "TERM": "dumb", "COLUMNS": "200", "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "redrive", *words],
            cwd=place,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text: str) -> str:
        """Read until that is seen; returns what came before it and with it."""
        ends = monotonic() + _PATIENCE
        while text not in self.seen:
            if not select.select([self._end], [], [], max(0.0, ends - monotonic()))[0]:
                raise AssertionError(f"{text!r} did not come: {self.seen}")
            try:
                read = os.read(self._end, 65_536)
            except OSError:  # the other side is closed
                read = b""
            if not read:
                raise AssertionError(f"it ended without {text!r}: {self.seen}")
            self.seen += read.decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, line: str) -> None:
        os.write(self._end, f"{line}\n".encode())

    def end(self) -> int:
        try:
            return self.process.wait(_PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._end)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for terminal in made:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()


def test_pdb_stops_at_the_first_line_of_the_handler_and_where_it_fails(shell: Shell, terminals: list[Terminal]) -> None:
    letter = dead("orders", b'{"id": 2, "price": "x"}', id="a")
    shell.keep([letter])
    terminal = Terminal(shell.place, "debug", letter.id, "--handler", "shop:charge")
    terminals.append(terminal)
    assert "hunter2" not in terminal.until("(Pdb) ")  # what it died of is masked, as everywhere
    terminal.type("p order.price")
    assert "'x'" in terminal.until("(Pdb) ")
    terminal.type("n")
    assert "total = int(order.price)" in terminal.until("(Pdb) ")
    terminal.type("c")
    assert "ValueError: invalid literal" in terminal.until("(Pdb) ")
    terminal.type("p 6 * 7")
    assert "42" in terminal.until("(Pdb) ")
    terminal.type("q")
    assert "It fails: ValueError" in terminal.until("'x'")
    assert terminal.end() == 1


def test_pdb_stops_in_a_coroutine_too_and_who_quits_has_done_nothing(shell: Shell, terminals: list[Terminal]) -> None:
    letter = dead("async", b'{"id": 2}', id="a")
    shell.keep([letter])
    terminal = Terminal(shell.place, "debug", letter.id[:8], "--handler", "shop:later")
    terminals.append(terminal)
    assert "await asyncio.sleep(0)" in terminal.until("(Pdb) ")
    terminal.type("q")
    terminal.until("nothing was sent, resolved or changed")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("orders", "shop:charge", ValueError),
        ("async", "shop:later", Exception),
        ("objects", "shop:objects", ValueError),  # by its source: an object has no name of its own
        ("batches", "shop:batch", ValueError),
        ("wrapped", "shop:wrapped", LookupError),
        ("orders", "shop:app", ValueError),
        ("elsewhere", "shop:plain", ValueError),
    ],
)
def test_every_kind_of_handler_is_handed_the_message_as_a_worker_would(
    shell: Shell, source: str, target: str, error: type[Exception]
) -> None:
    message = dead(source, b'{"id": 2, "price": "x"}', id="a").message
    with pytest.raises(error):
        handle(target, message)
    if source == "wrapped":
        assert (shell.place / "around.log").read_text() == "a"


def test_a_body_that_does_not_decode_fails_as_it_does_for_a_worker(shell: Shell) -> None:
    with pytest.raises(Exception, match="price"):
        handle("shop:charge", dead("orders", b'{"id": 1}', id="a").message)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop:refund", "There is shop:Charger"),
        ("shop:chareg", "did you mean 'charge'"),
        ("shop", "no handler for the source 'nowhere'"),
        ("nothing:x", "no module 'nothing'"),
        ("", "is no module"),
    ],
)
def test_a_handler_that_is_not_there_is_said_with_those_that_are(shell: Shell, target: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_handler(target, "nowhere")
    assert said in str(refused.value)


def test_the_written_test_fails_as_the_letter_did_and_passes_once_it_is_mended(shell: Shell) -> None:
    body = b'{"id": 2, "price": "x", "note": "' + b"long " * 40 + b'"}'
    letter = dead("orders", body, id="a'\"\\b")
    shell.keep([letter])
    done = shell("debug", letter.id, "--handler", "shop:charge", "--pytest", "tests/test_charge.py")
    assert (shell.place / "tests/test_charge.py").stat().st_mode & 0o777 == 0o600
    assert "look for secrets in it" in done.stderr
    assert pytested(shell, 1).count("ValueError: invalid literal for int() with base 10: 'x'") >= 1
    assert (
        "is there already"
        in shell("debug", letter.id, "--handler", "shop:charge", "--pytest", "tests/test_charge.py", code=2).stderr
    )
    text = (shell.place / "shop.py").read_text()
    (shell.place / "shop.py").write_text(text.replace("int(order.price)", "len(order.price)"))
    assert "1 passed" in pytested(shell, 0)


def pytested(shell: Shell, code: int) -> str:
    """What pytest says of the written test, in a process that knows nothing of ours."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "-c", os.devnull]
    done = subprocess.run(
        [*words, "tests/test_charge.py"],
        cwd=shell.place,
        capture_output=True,
        timeout=_PATIENCE,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == code, done.stdout.decode()
    return done.stdout.decode()


def test_a_hostile_letter_writes_no_code_into_the_test(shell: Shell) -> None:
    letter = dead('or"""\nimport os\nders', b'"""\nraise SystemExit\n\\', id='"""; x = 1', error='"""\nboom()\n\\')
    text = text_of_test(carried(letter, Redactor(), raw=True), 'shop:"""\nboom()')
    names: dict[str, object] = {}
    exec(compile(text, "test.py", "exec"), names)
    made = inspect.unwrap(names["message"])()  # type: ignore[arg-type]
    assert (made.source, made.id, made.body) == (letter.message.source, letter.message.id, letter.message.body)
    assert "x" not in names


def test_a_message_comes_through_the_wire_as_it_is_or_masked() -> None:
    letter = dead("orders", b'{"password": "hunter2", "id": 1}', id="a")
    raw = carried(letter, Redactor(), raw=True)
    assert (message_of(raw), raw.redacted) == (letter.message, False)
    masked = carried(letter, Redactor(), raw=False)
    message = message_of(masked)
    assert masked.redacted
    assert b"hunter2" not in message.body
    assert b"s3cr3t" not in dict(message.headers)["authorization"]
    assert b'"id"' in message.body


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nope", "--handler", "shop:charge"), 1, "no letter 'nope'"),
        (("LETTER", "--handler", "shop:refund"), 2, "There is shop:Charger"),
        (("LETTER",), 2, "--handler"),
        (("LETTER", "--handler", "shop", "--pytest", "x.py"), 2, "name the handler"),
        (("LETTER", "--handler", "shop:charge", "--server", "nowhere"), 2, "write its address"),
        (("LETTER", "--handler", "shop:charge", "--server", "http://127.0.0.1:9"), 2, "not logged in"),
    ],
)
def test_what_is_wrong_is_said(shell: Shell, words: tuple[str, ...], code: int, said: str) -> None:
    letter = dead("orders", b"{}", id="a")
    shell.keep([letter])
    done = shell("debug", *(letter.id if word == "LETTER" else word for word in words), code=code)
    assert said in " ".join(done.stderr.split())
