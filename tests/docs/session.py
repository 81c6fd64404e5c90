"""A reader who does what a page says, in a directory of his own."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.docs.samples import ROOT, Block, Step
from tests.docs.terminal import PATIENCE, Command
from tests.docs.transcript import agrees, shape

_STAYS = re.compile(r"redrive (?:run|up|demo)\b")
# Commands that only look: whoever does not see yet what the page shows looks again.
_LOOKS = re.compile(
    r"redrive (?:groups|letters|show|stats|replays|incidents|held|pause --list)\b"
    r"(?! (?:pause|resume|pace|cancel|ack|note|resolve)\b)"
)
_EXPORT = re.compile(r"export (?P<name>\w+)=(?P<value>.+)")
_PLACE = re.compile(r"\b(LETTER|ID|GROUP|REPLAY|INCIDENT)\b")
_PORT = "8321"
_OURS = ("REDRIVE_", "PYTEST_", "COLUMNS", "LINES")  # what the reader's own environment would not have
_EXITS = {
    # in README.md nobody has mended the letter that it sends back, so it fails again
    "redrive replay --group GROUP --rate 50/s --wait": 1,
    # a replay that pauses by itself is not at its end
    "redrive replay --group GROUP --canary 2 --guard 10% --yes": 1,
}
"""Commands that are meant to end with another code than 0."""


class Reader:
    """Writes the files, runs the commands, and compares what they print with what the page shows."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = str(_free_port())
        self._staying: list[Command] = []  # in terminals of their own, the latest last
        self._seen = 0  # of what the latest printed
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        self._environ |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(directory),
            "NO_COLOR": "1",
            "TERM": "xterm",
            "REDRIVE_ADMIN_PORT": self._port,
        }

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._staying:
            self._stop() if kind is None else self._staying.pop().close()

    def do(self, step: Step) -> None:
        block = step.block
        if block.file is not None:
            self._write(block, block.file)
        elif block.language == "python":
            self._python(block, block.text)
        else:
            self._run_commands(step)

    def _write(self, block: Block, name: str) -> None:
        """A module has to import, and a configuration to be one; a script is run where the page runs it."""
        file = self._directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)
        if file.suffix == ".py" and "asyncio.run(" not in block.text and not file.name.startswith("test_"):
            self._python(block, f"import runpy; runpy.run_path({name!r}, run_name='imported')")
        elif file.stem == "redrive":
            code = f"from pathlib import Path; from redrive.config.load import read; read(Path({name!r}), {{}})"
            self._python(block, code)

    def _python(self, block: Block, code: str) -> None:
        self._output([sys.executable, "-W", "error", "-c", code], block.place)

    def _output(self, words: list[str], place: str = "") -> str:
        """What a program prints for programs."""
        done = subprocess.run(
            words, cwd=self._directory, env=self._environ, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, f"{place or words}:\n{done.stderr}"
        return done.stdout

    def _run_commands(self, step: Step) -> None:
        commands = step.block.commands
        if not commands:
            self._watch(step)
            return
        *before, last = commands
        printed = "".join(self._run(step, command) for command in before)
        if step.shown is None or step.stays or _STAYS.match(last):
            self._run(step, last)
        else:
            self._compare(step, step.shown, printed, last)

    def _compare(self, step: Step, shown: str, before: str, last: str) -> None:
        """What the commands print is what the page shows; what only looks may look until it is so."""
        deadline = time.monotonic() + (PATIENCE if _LOOKS.match(last) else 0)
        while not agrees(shown, printed := before + self._run(step, last)):
            assert time.monotonic() < deadline, _differs(step, printed)

    def _run(self, step: Step, command: str) -> str:
        if command == "^C":
            return self._stop()
        if target := re.match(r"make (\w+)", command):
            assert re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
            return ""
        if command.startswith("pip install"):
            return _checked_extras(command)
        if export := _EXPORT.fullmatch(command):
            self._environ[export["name"]] = self._output(["bash", "-c", f"printf %s {export['value']}"])
            return ""
        filled = self._filled(command)
        if _STAYS.match(filled) or (step.stays and command == step.block.commands[-1]):
            self._stay(step, filled)
            return ""
        return self._foreground(filled, _EXITS.get(command, 0))

    def _foreground(self, command: str, wanted: int) -> str:
        running = Command(command, self._directory, self._environ)
        try:
            code = running.ended()
        finally:
            running.close()
        assert code == wanted, f"{command}: exit code {code}, not {wanted}\n{running.printed}"
        return self._familiar(running.printed)

    def _stay(self, step: Step, command: str) -> None:
        """It runs until Ctrl-C or the end of the page; we go on when it shows what the page shows."""
        running = Command(command, self._directory, self._environ)
        self._staying.append(running)
        self._seen = 0
        if step.shown is not None:
            self._watch(step)
            return
        assert running.wait_for(lambda text: "worker_started" in text or "http://" in text), running.printed
        self._until_handled()

    def _watch(self, step: Step) -> None:
        """Until it has printed what the page shows, after what was shown before."""
        assert self._staying, f"{step.block.place}: nothing runs that could print this"
        running, shown, seen = self._staying[-1], step.shown, self._seen
        assert shown is not None, f"{step.block.place}: it shows nothing"
        there = running.wait_for(lambda printed: agrees(shown, self._familiar(printed[seen:]), so_far=True))
        assert there, _differs(step, self._familiar(running.printed[seen:]))
        self._seen = len(running.printed)

    def _stop(self) -> str:
        """What it printed after Ctrl-C."""
        assert self._staying, "there is nothing to stop"
        running, seen = self._staying.pop(), self._seen
        try:
            code = running.interrupt()
        finally:
            running.close()
        assert code in (0, 130), f"{running.text}: exit code {code}\n{running.printed}"
        self._seen = len(self._staying[-1].printed) if self._staying else 0
        return self._familiar(running.printed[seen:])

    def _until_handled(self) -> None:
        """Until nothing is ready or being handled; each look is a whole process, so it does not hurry."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            queues = [source["queued"] for source in self._ask("stats")["sources"] if source["queued"]]
            if not any(queue["ready"] + queue["leased"] for queue in queues):
                return
        raise AssertionError("the worker does not handle what waits")

    def _filled(self, command: str) -> str:
        """With what the reader would put in: LETTER is the newest, GROUP the largest, REPLAY the latest."""
        return _PLACE.sub(lambda found: self._name(found[1]), command).replace(_PORT, self._port)

    def _name(self, what: str) -> str:
        if what == "GROUP":
            return str(self._ask("groups")["groups"][0]["id"])
        if what == "INCIDENT":
            return str(self._ask("incidents")["incidents"][0]["id"])
        if what == "REPLAY":
            return str(self._ask("replays")["replays"][0]["replay"]["id"])
        return str(self._ask("letters")["letters"][0]["id"])

    def _ask(self, command: str) -> Any:
        return json.loads(self._output(["redrive", command, "--json"]))

    def _familiar(self, printed: str) -> str:
        """With the port, the directory and the user of the page."""
        printed = printed.replace(f"{getpass.getuser()} (cli)", "you (cli)")
        return printed.replace(str(self._directory), "/home/you/shop").replace(self._port, _PORT)


def _checked_extras(command: str) -> str:
    """Nothing is installed, but what is named has to be there."""
    assert re.match(r"pip install (?:'?\.|aiobotocore)", command), f"{command}: the package is not published yet"
    extras = re.search(r"\.\[([\w,]+)\]", command)
    text = (ROOT / "pyproject.toml").read_text()
    for extra in extras[1].split(",") if extras else ():
        assert re.search(rf"^{extra} = \[", text, re.MULTILINE), f"there is no extra {extra!r}"
    return ""


def _differs(step: Step, printed: str) -> str:
    shown = shape(step.shown or "")
    return f"{step.block.place} shows\n{shown}\n\nand it prints\n{shape(printed)}"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
