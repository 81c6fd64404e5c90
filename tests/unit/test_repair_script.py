"""Scripts of every kind, also those that want no good: each is named with its line, and none stops a repair."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.model import Letter
from redrive.repair.process import Repaired, Script, ScriptFailed
from redrive.testing.builders import make_letter, make_message

pytestmark = pytest.mark.asyncio
Runs = Callable[..., Awaitable[list[Repaired]]]
HEADERS = (("a", b"1"), ("a", b"\xff"), ("b", b"2"))
BODY = b'{"total": "12", "big": 123456789012345678901234567890}'


@pytest.fixture
def run(tmp_path: Path) -> Runs:
    async def run(text: str, *letters: Letter, timeout: float = 30.0, memory: int = 512 << 20) -> list[Repaired]:
        file = tmp_path / "fix.py"
        file.write_text(text)
        letters = letters or (make_letter(make_message(body=BODY, headers=HEADERS)),)
        async with Script(file, timeout=timedelta(seconds=timeout), memory=memory) as script:
            return [await script.repair(letter) for letter in letters]

    return run


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("return b'new'", b"new"),
        ("return 'Größe'", "Größe".encode()),
        ("return {**message.json, 'total': 12}", b'{"total": 12, "big": 123456789012345678901234567890}'),
        ("return [1]", b"[1]"),
        ("message.json['total'] = 12; return message", b'{"total": 12, "big": 123456789012345678901234567890}'),
        ("message.text = message.text.upper(); return message", BODY.upper()),
        ("message.body = bytes(range(256)); return message", bytes(range(256))),
    ],
)
async def test_what_comes_back_is_the_new_body(run: Runs, line: str, body: bytes) -> None:
    assert await run(f"def repair(message):\n    {line}") == [Repaired(body, HEADERS)]


@pytest.mark.parametrize(
    "line", ["return None", "return message", "message.json; return message", "return message.body", "pass"]
)
async def test_what_is_left_alone_is_unchanged(run: Runs, line: str) -> None:
    [made] = await run(f"def repair(message):\n    {line}")
    assert made == Repaired()


async def test_headers_are_set_and_removed_and_the_others_stay_in_their_place(run: Runs) -> None:
    [made] = await run(
        "def repair(message):\n    del message.headers['b']\n    message.headers['c'] = 'x'\n    return message"
    )
    assert made == Repaired(BODY, (("a", b"1"), ("a", b"\xff"), ("c", b"x")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def repair(message):\n    x = 1\n    return message.json['nothing']", "fix.py:3: KeyError: 'nothing'"),
        ("def repair(message):\n    return 7", "fix.py:2: TypeError: repair() returned a int"),
        ("def repair(message):\n    return object()", "returned a object"),
        ("def repair(message):\n    message.body = 7\n    return message", "the body is a int"),
        ("def repair(message):\n    message.headers['x'] = 7\n    return message", "headers are bytes or str"),
        ("def repair(message):\n    message.body = b'x'", "changed the message and returned nothing"),
        ("def repair(message):\n    return {'a': float('nan')}", "fix.py:2: ValueError"),
        ("def repair(message):\n    raise SystemExit(3)", "fix.py:2: SystemExit: 3"),
        ("import os\ndef repair(message):\n    os._exit(3)", "fix.py:3: it ended its process (exit 3)"),
        ("import os\ndef repair(message):\n    os.abort()", "fix.py:3: it ended its process (SIGABRT)"),
        (
            "import os\ndef repair(message):\n    os.fork()",
            "fix.py:3: PermissionError: a repair starts and ends no processes",
        ),
        ("import os\ndef repair(message):\n    os.system('true')", "starts and ends no processes"),
        ("import os\ndef repair(message):\n    os.kill(os.getppid(), 9)", "starts and ends no processes"),
        ("import subprocess\ndef repair(message):\n    subprocess.run(['true'])", "fix.py:3: PermissionError"),
        ("def repair(message):\n    return b'x' * (8 << 30)", "fix.py:2: MemoryError"),
        ("def repair(message):\n    return repair(message)", "RecursionError"),
    ],
)
async def test_a_script_that_fails_is_named_with_its_line(run: Runs, text: str, said: str) -> None:
    [made] = await run(text)
    assert made.failed is not None
    assert said in made.failed
    assert not made.is_changed


async def test_a_script_that_loops_is_ended_and_the_next_letter_has_its_turn(run: Runs) -> None:
    text = "def repair(message):\n    while message.body == b'loop':\n        pass\n    return b'done'"
    letters = [make_letter(make_message(body=body)) for body in (b"one", b"loop", b"two")]
    first, looped, last = await run(text, *letters, timeout=10.0)
    assert (first.body, last.body) == (b"done", b"done")
    assert looped.failed in ("fix.py:2: it took longer than 10 s", "fix.py:3: it took longer than 10 s")


async def test_a_script_that_always_dies_is_given_up(run: Runs) -> None:
    with pytest.raises(ScriptFailed, match=r"fix.py:2: it ended its process \(exit 1\): 3 letters in a row"):
        await run("def repair(message):\n    __import__('os')._exit(1)", *[make_letter() for _ in range(9)])


async def test_what_a_script_prints_is_counted_and_harms_nothing(tmp_path: Path) -> None:
    file = tmp_path / "fix.py"
    file.write_text("import sys\ndef repair(message):\n    print('x' * 70000)\n    sys.stdout.flush()\n    return b'y'")
    async with Script(file, timeout=timedelta(seconds=30), memory=512 << 20) as script:
        made = [await script.repair(make_letter()) for _ in range(20)]
    assert [item.body for item in made] == [b"y"] * 20
    assert script.printed >= 20
    assert script.first_printed[0].startswith("xxx")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def repair(message)\n    pass", "fix.py:1: SyntaxError"),
        ("import nothing_of_that_name", "fix.py:1: ModuleNotFoundError"),
        ("x = 1", "has no function `repair"),
        ("async def repair(message): pass", "plain function"),
        ("import os\nos._exit(4)", "fix.py:2: it ended its process (exit 4) while it was loaded"),
    ],
)
async def test_a_script_that_cannot_be_loaded_says_why(run: Runs, text: str, said: str) -> None:
    with pytest.raises(ScriptFailed) as caught:
        await run(text)
    assert said in str(caught.value)


async def test_a_script_finds_what_is_beside_it(run: Runs, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("NEW = b'beside'")  # the name of a file of ours, too
    assert await run("import script\ndef repair(message):\n    return script.NEW") == [Repaired(b"beside", HEADERS)]


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptFailed, match="there is no file"):
        Script(tmp_path / "no.py", timeout=timedelta(seconds=1), memory=1 << 20)


async def test_a_large_body_goes_both_ways(run: Runs) -> None:
    body = bytes(range(256)) * (50 << 12)  # 50 MB
    [made] = await run("def repair(message):\n    return message.body[::-1]", make_letter(make_message(body=body)))
    assert made.body == body[::-1]
