"""The runner of a guarded, ordered replay is killed at its steps: every letter is accounted for, each key in order."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from redrive.clock import SystemClock
from redrive.flow.guard import Guard
from redrive.flow.replay import Replays, ReplayState
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.registry import open_store
from redrive.stores.base import Entry, EntryStatus
from redrive.telemetry.events import Events
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.faults.replay_process import PAUSED, REPLAY, SOURCE, Orders

ROOT = Path(__file__).parents[2]
LETTERS = int(os.environ.get("REDRIVE_REPLAY_LETTERS", "120"))
KILLS = int(os.environ.get("REDRIVE_REPLAY_KILLS", "3"))
_PATIENCE = 600 if "REDRIVE_REPLAY_LETTERS" in os.environ else 120  # seconds for one process
STEPS: tuple[dict[str, Any], ...] = (
    {"call": 12, "after": True},  # in the canary
    {"when": {"step": 1}, "after": True},  # at the begin of the ramp
    {"when": {"state": "paused"}, "after": False},  # about to pause
    {"when": {"state": "paused"}, "after": True},  # paused
    {"when": {"state": "running"}, "after": False, "resume": True},  # about to go on
    {"when": {"state": "running"}, "after": True, "resume": True},  # gone on
)


async def fill(directory: Path, count: int, bad: int) -> None:
    """Letters of many keys, `bad` of them first of their key's second half; and a replay of all of them."""
    store = open_store(Orders(str(directory)).url)
    start, letters = SystemClock().now() - timedelta(hours=1), []
    keys = max(count // 8, 1)
    for number in range(count):
        key, turn = number % keys, number // keys
        kind = "bad" if key < bad and turn == 2 else "good"
        message = make_message(
            id=f"{kind}-{turn:04}-{key}", source=SOURCE, key=b"%d" % key, body=b'{"n": "%d"}' % number
        )
        at = start + timedelta(milliseconds=number)
        letters.append(make_letter(message, make_failure(at=at), at=at))
        if len(letters) == 5000:
            await store.letters.record(letters)
            letters = []
    await store.letters.record(letters)
    guard = Guard(canary=5, ramp=(20, 100), share=0.02 if bad else 1)
    replays = Replays(store, {}, Events(), SystemClock())
    await replays.start(Query(), actor="test", id=REPLAY, guard=guard, ordered=True)
    await store.aclose()


async def process(orders: Orders) -> int:
    """Its exit code."""
    text = msgspec.json.encode(orders).decode()
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.faults.replay_process", text, cwd=ROOT)
    try:
        return await asyncio.wait_for(child.wait(), _PATIENCE)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def to_its_end(directory: Path) -> int:
    """Clean processes end the work, going on as often as the guard pauses it; how often that was."""
    for times in range(50):
        code = await process(Orders(str(directory), resume=times > 0))
        if code == 0:
            return times
        assert code == PAUSED
    raise AssertionError("it pauses again and again")


async def check(directory: Path) -> Counter[EntryStatus]:
    """Each letter is resolved, dead again once, or skipped with a reason, and each key kept its order."""
    store = open_store(Orders(str(directory)).url)
    entries, letters = await _all(store)
    replay = await Replays(store, {}, Events(), SystemClock()).get(REPLAY)
    await store.aclose()
    done = Orders(str(directory)).done.read_text().splitlines()
    assert replay.state is ReplayState.SENT
    assert len(entries) == replay.total == len(letters)
    for entry in entries:
        letter = letters[entry.letter]
        assert letter.owner is None
        if entry.status is EntryStatus.RESOLVED:
            assert letter.state is State.RESOLVED
            assert letter.message.id in done
        elif entry.status is EntryStatus.FAILED:
            assert (letter.state, len(letter.failures)) == (State.EXHAUSTED, 2)
        else:
            assert (entry.status, letter.state) == (EntryStatus.SKIPPED, State.PENDING)
            assert "behind" in entry.note
            assert letter.message.id not in done
    _check_order(done, letters)
    return Counter(entry.status for entry in entries)


def _check_order(done: list[str], letters: dict[str, Letter]) -> None:
    keys = {letter.message.id: letter.message.key for letter in letters.values()}
    turns: dict[bytes | None, list[int]] = {}
    for id in dict.fromkeys(done):
        turns.setdefault(keys[id], []).append(int(id.split("-")[1]))
    assert all(seen == sorted(seen) for seen in turns.values())


async def _all(store: Any) -> tuple[list[Entry], dict[str, Letter]]:
    entries: list[Entry] = []
    after = None
    while True:
        some, after = await store.ledger.entries(REPLAY, after=after, limit=1000)
        entries += some
        if after is None:
            break
    page = await store.letters.search(Query(), limit=1_000_000)
    return entries, {letter.id: letter for letter in page.letters}


async def test_killed_at_every_step_of_canary_ramp_pause_and_resume_it_is_run_on(tmp_path: Path) -> None:
    await fill(tmp_path, 48, bad=3)
    for step in STEPS:
        assert await process(Orders(str(tmp_path), **step)) == -signal.SIGKILL, step
    await to_its_end(tmp_path)
    found = await check(tmp_path)
    assert found[EntryStatus.FAILED] == 3
    assert found[EntryStatus.SKIPPED] == 3 * 5


async def test_two_processes_run_one_replay_and_each_letter_goes_once(tmp_path: Path) -> None:
    await fill(tmp_path, 64, bad=0)
    assert await asyncio.gather(*(process(Orders(str(tmp_path))) for _ in range(2))) == [0, 0]
    assert await check(tmp_path) == {EntryStatus.RESOLVED: 64}
    done = Orders(str(tmp_path)).done.read_text().splitlines()
    assert len(done) == len(set(done))


async def test_after_random_kills_every_letter_is_accounted_for(tmp_path: Path) -> None:
    """`REDRIVE_REPLAY_LETTERS=100000 REDRIVE_REPLAY_KILLS=20` makes it a large one."""
    rng = random.Random(int(os.environ.get("REDRIVE_FAULT_SEED", "1")))
    bad = max(LETTERS // 60, 1)
    await fill(tmp_path, LETTERS, bad=bad)
    for _ in range(KILLS):
        call = rng.randrange(5, 60)
        died = Orders(str(tmp_path), call=call, after=rng.random() < 0.5, resume=rng.random() < 0.7, batch=10)
        await process(died)
    await to_its_end(tmp_path)
    found = await check(tmp_path)
    assert found.total() == LETTERS
    assert found[EntryStatus.FAILED] == bad
