"""Reports of somebody else's worker: on disk before it goes on, in the store as soon as it answers, never twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.errors import ConfigError, StoreUnavailable
from redrive.flow.lineage import sent_back
from redrive.flow.signing import load_keys, use_key
from redrive.forensics.query import Query
from redrive.integrations.courier import Courier, batches
from redrive.integrations.letters import failure_of, failure_told, letter_of
from redrive.integrations.reporter import Reporter
from redrive.integrations.reports import Died, Noted, Succeeded, packed
from redrive.integrations.spool import Spool, default_directory, filesystem_of
from redrive.model import LETTER_HEADER, Letter, Message, State, letter_id, with_headers
from redrive.proof import forget
from redrive.stores.base import EntryStatus, Letters
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import open_store
from redrive.testing.waiting import until

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def made(id: str, error: BaseException | None = None, *, attempt: int = 1) -> Letter:
    message = Message(id, "celery.tasks", b'{"n":1}', NOW)
    return letter_of(message, [failure_of(error or ValueError("bad"), at=NOW, attempt=attempt)], transport="x", now=NOW)


def url_in(directory: Path) -> str:
    return f"sqlite:///{directory / 'letters.db'}"


async def all_letters(url: str) -> Sequence[Letter]:
    store = open_store(url)
    try:
        return (await store.letters.search(Query(), limit=1000)).letters
    finally:
        await store.aclose()


def waiting(directory: Path) -> int:
    return len(Spool(directory).waiting(1000))


async def test_what_dies_is_on_disk_at_once_and_in_the_store_soon(tmp_path: Path) -> None:
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    for number in range(3):
        assert reporter.died(made(f"t{number}"))
    await until(lambda: waiting(reporter.directory) == 0, what="all is delivered")
    reporter.close()
    assert {letter.message.id for letter in await all_letters(url_in(tmp_path))} == {"t0", "t1", "t2"}


async def test_a_death_after_a_replay_rejoins_its_letter_and_a_success_resolves_it(tmp_path: Path) -> None:
    store, spool = MemoryStore(), Spool(tmp_path / "spool")
    first, second = made("t1"), made("t2")
    await load_keys(store, NOW)
    await store.letters.record([first, second])
    await store.ledger.freeze("r1", Query(), now=NOW)
    sent = {}
    for letter in (first, second):
        [claimed] = await store.letters.claim(
            Query(ids=(letter.id,)), to=State.REPLAYING, owner="r1", now=NOW, until=NOW, limit=1, replay="r1"
        )
        sent[letter.id] = sent_back(claimed, now=NOW, replay="r1")
    again = failure_of(OSError("still"), at=NOW, attempt=2)
    spool.put(packed(Died(letter_of(sent[first.id], [again], transport="x", now=NOW))))
    courier = Courier(spool, lambda: store)
    courier.end()
    await courier.run()

    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    reporter.delivers = False
    assert reporter.succeeded(sent[second.id])
    courier = Courier(spool, lambda: store)
    courier.end()
    await courier.run()
    dead, resolved = await store.letters.get(first.id), await store.letters.get(second.id)
    assert dead is not None
    assert resolved is not None
    assert (dead.state, len(dead.failures), dead.message.headers) == (State.EXHAUSTED, 2, ())
    assert resolved.state is State.RESOLVED
    entries, _ = await store.ledger.entries("r1")
    assert {entry.letter: entry.status for entry in entries} == {
        first.id: EntryStatus.FAILED,
        second.id: EntryStatus.RESOLVED,
    }


async def test_only_the_message_that_was_sent_back_resolves_its_letter(tmp_path: Path) -> None:
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    forged = Message("other", "celery.tasks", b"", NOW, (("redrive-letter", letter_id("celery.tasks", "t1").encode()),))
    assert not reporter.succeeded(forged)
    own = Message("t1", "celery.tasks", b"", NOW, forged.headers)
    assert reporter.succeeded(own)
    reporter.close()


async def test_what_a_producer_claims_in_the_headers_of_a_task_moves_no_letter(tmp_path: Path) -> None:
    store, spool, letter = MemoryStore(), Spool(tmp_path / "spool"), made("t1")
    await load_keys(store, NOW)
    await store.letters.record([letter])
    await store.ledger.freeze("r1", Query(), now=NOW)
    [away] = await store.letters.claim(
        Query(ids=(letter.id,)), to=State.REPLAYING, owner="r1", now=NOW, until=NOW, limit=1, replay="r1"
    )
    genuine = sent_back(away, now=NOW, replay="r1")
    of_another_replay = with_headers(genuine.headers, redrive_replay=b"r2")
    unsigned = with_headers(genuine.headers, redrive_letter=letter.id.encode(), redrive_retries=b"7")
    before = await store.letters.get(letter.id)
    forget()  # its worker has no keys
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    reporter.delivers = False
    for headers in (of_another_replay, unsigned):
        forged = replace(genuine, headers=headers)
        assert reporter.succeeded(forged), "who has no keys cannot tell"
        again = failure_of(OSError("forged"), at=NOW, attempt=2)
        assert reporter.died(letter_of(forged, [again], transport="x", now=NOW))
    spool.put(packed(Succeeded(letter.id, NOW, "r1")))  # as an older version reported it
    courier = Courier(spool, lambda: store)
    courier.end()
    await courier.run()
    assert await store.letters.get(letter.id) == before
    [other] = [found for found in (await store.letters.search(Query())).letters if found.id != letter.id]
    assert (other.state, other.retries, other.last.message) == (State.PENDING, 0, "forged")
    assert await store.ledger.tally("r1") == {EntryStatus.SELECTED: 1}


async def test_a_success_that_no_proof_could_travel_with_resolves_only_what_is_on_its_way_back(tmp_path: Path) -> None:
    store, at_rest, away = MemoryStore(), made("t1"), made("t2")
    await load_keys(store, NOW)
    await store.letters.record([at_rest, away])
    await store.letters.claim(
        Query(ids=(away.id,)), to=State.REPLAYING, owner="r1", now=NOW, until=NOW, limit=1, replay="r1"
    )
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    reporter.delivers = False
    for letter in (at_rest, away):
        claim = ((LETTER_HEADER, letter.id.encode()),)
        assert reporter.succeeded(replace(letter.message, headers=claim), bare=True)
    courier = Courier(Spool(tmp_path / "spool"), lambda: store)
    courier.end()
    await courier.run()
    found = {letter.id: letter.state for letter in (await store.letters.search(Query())).letters}
    assert found == {at_rest.id: State.PENDING, away.id: State.RESOLVED}


async def test_what_somebody_put_back_by_hand_resolves_its_letter_by_its_body_alone(tmp_path: Path) -> None:
    store, letters = MemoryStore(), [made("t1"), made("t2")]
    await load_keys(store, NOW)
    await store.letters.record(letters)
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    reporter.delivers = False
    another = replace(letters[0].message, body=b"another")
    assert all(map(reporter.succeeded_by_hand, (another, letters[1].message)))
    courier = Courier(Spool(tmp_path / "spool"), lambda: store)
    courier.end()
    await courier.run()
    found = [letter.state for letter in [await store.letters.get(letter.id) for letter in letters] if letter]
    assert found == [State.PENDING, State.RESOLVED]


async def test_a_success_is_proven_by_the_key_of_the_settings_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, letter = MemoryStore(), made("t1")
    use_key("of the settings")
    await load_keys(store, NOW)
    await store.letters.record([letter])
    genuine = sent_back(letter, now=NOW, by_hand=True)
    forget()  # its worker is another process
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    reporter.delivers = False
    assert reporter.succeeded(genuine)
    monkeypatch.setenv("REDRIVE_LINEAGE_KEY", "of the settings")
    courier = Courier(Spool(tmp_path / "spool"), lambda: store)
    courier.end()
    await courier.run()
    found = await store.letters.get(letter.id)
    assert found is not None
    assert found.state is State.RESOLVED


async def test_what_an_older_version_reported_is_believed_where_the_store_had_letters(tmp_path: Path) -> None:
    store, spool, letter = MemoryStore(), Spool(tmp_path / "spool"), made("t1")
    await store.letters.record([letter])
    spool.put(packed(Succeeded(letter.id, NOW)))
    courier = Courier(spool, lambda: store)
    courier.end()
    await courier.run()
    found = await store.letters.get(letter.id)
    assert found is not None
    assert found.state is State.RESOLVED


class Away:
    """Letters of a store that is away until it is let back."""

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self.is_away = True
        self.asked = asyncio.Event()

    async def search(self, query: Query, *, limit: int = 50) -> object:
        self.asked.set()
        if self.is_away:
            raise StoreUnavailable("the store", "it is away")
        return await self._letters.search(query, limit=limit)

    async def record(self, letters: Sequence[Letter]) -> None:
        await self._letters.record(letters)

    async def count(self, query: Query) -> int:
        return await self._letters.count(query)


class AwayStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.real = self.letters
        self.letters = self.away = Away(self.real)  # type: ignore[assignment]


async def test_while_the_store_is_away_reports_wait_and_are_delivered_when_it_is_back(tmp_path: Path) -> None:
    store, spool = AwayStore(), Spool(tmp_path / "spool")
    spool.put(packed(Died(made("t1"))))
    courier = Courier(spool, lambda: store)
    running = asyncio.create_task(courier.run())
    await store.away.asked.wait()
    assert len(spool.waiting(10)) == 1
    store.away.is_away = False
    await until(lambda: not spool.waiting(10), what="it is delivered")
    courier.end()
    await running
    assert await store.real.count(Query()) == 1


@pytest.mark.parametrize("apart", [False, True], ids=["thread", "process"])
async def test_a_store_that_is_away_when_its_worker_starts_has_the_letters_once_it_is_there(
    apart: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "place"
    place.touch()  # a file where the store's directory should be
    reporter = Reporter(url_in(place), spool=tmp_path / "spool", apart=apart)
    assert reporter.died(made("t1"))
    if not apart:  # the other says it on its own stderr
        await until(lambda: "letters wait in" in caplog.text, what="it says that they wait")
    place.unlink()
    place.mkdir()
    await until(lambda: waiting(reporter.directory) == 0, what="it is delivered")
    reporter.close(30)
    assert len(await all_letters(url_in(place))) == 1


async def test_two_integrations_of_a_process_have_one_courier_and_the_second_goes_on_when_the_first_ends(
    tmp_path: Path,
) -> None:
    """A lock on a file is of a process: of two couriers in one each would believe to be the only one."""
    first, second = Spool(tmp_path / "spool"), Spool(tmp_path / "spool")
    assert first.take()
    assert not second.take()
    second.release()
    assert not second.take()
    first.release()
    assert second.take()
    second.release()

    reporters = [Reporter(url_in(tmp_path), spool=tmp_path / "spool") for _ in range(2)]
    for number in range(40):
        assert reporters[number % 2].died(made(f"t{number}"))
    await until(lambda: waiting(tmp_path / "spool") == 0, what="all is delivered")
    reporters[0].close(30)
    assert reporters[1].died(made("last"))
    await until(lambda: waiting(tmp_path / "spool") == 0, what="the other delivers")
    reporters[1].close(30)
    letters = await all_letters(url_in(tmp_path))
    assert len(letters) == 41
    assert {len(letter.failures) for letter in letters} == {1}


class Broken(MemoryStore):
    """A store that fails, in a way of its own, at one letter."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = BrokenLetters(self.letters)  # type: ignore[assignment]


class BrokenLetters:
    def __init__(self, letters: Letters) -> None:
        self._letters = letters

    async def record(self, letters: Sequence[Letter]) -> None:
        if any(letter.message.id == "t1" for letter in letters):
            raise RuntimeError("a bug")
        await self._letters.record(letters)

    def __getattr__(self, name: str) -> object:
        return getattr(self._letters, name)


async def test_a_report_that_a_store_fails_at_stays_and_holds_up_none_beside_it(tmp_path: Path) -> None:
    store, spool = Broken(), Spool(tmp_path / "spool")
    for number in range(3):
        spool.put(packed(Died(made(f"t{number}"))))
    courier = Courier(spool, lambda: store)
    courier.end()
    await courier.run()
    assert {letter.message.id for letter in (await store.letters.search(Query(), limit=9)).letters} == {"t0", "t2"}
    assert len(spool.waiting(10)) == 1


async def test_large_reports_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.integrations.courier._LARGEST", 1000)
    store, spool = MemoryStore(), Spool(tmp_path / "spool")
    for number in range(5):
        message = Message(f"t{number}", "celery.tasks", b"x" * 300, NOW)
        spool.put(packed(Died(letter_of(message, [failure_of(ValueError(), at=NOW)], transport="x", now=NOW))))
    sizes = [len(batch) for batch in batches(spool.waiting(10))]
    assert sizes == [2, 2, 1]
    courier = Courier(spool, lambda: store)
    courier.end()
    await courier.run()
    assert await store.letters.count(Query()) == 5


async def test_a_note_of_a_worker_is_a_document_of_the_store(tmp_path: Path) -> None:
    store = MemoryStore()
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    assert reporter.noted("integration", "celery/w1", {"acks_late": False})
    reporter.close(30)
    spool = Spool(tmp_path / "again")
    spool.put(packed(Noted("integration", "celery/w1", {"n": 1})))
    spool.put(packed(Noted("integration", "celery/w1", {"n": 2})))
    courier = Courier(spool, lambda: store)
    courier.end()
    await courier.run()
    [document] = await store.documents.list("integration")
    assert (document.id, document.body) == ("celery/w1", {"n": 2})


def test_a_failure_of_which_only_texts_came_is_grouped_by_the_users_own_code() -> None:
    stack = """Traceback (most recent call last):
  File "/app/.venv/lib/python3.11/site-packages/celery/app/trace.py", line 479, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/app/shop/tasks.py", line 7, in charge
    raise CardError("no")
shop.CardError: no
"""
    failure = failure_told("shop.CardError", "no", at=NOW, stack=stack)
    assert failure.frames == ("tasks:charge",)
    assert failure_told("ValueError", "no", at=NOW, error=ValueError("no")).category == "validation"


async def test_what_is_no_report_is_put_away_and_holds_up_nothing(tmp_path: Path) -> None:
    store, spool = MemoryStore(), Spool(tmp_path / "spool")
    spool.put(b"\xc1 rubbish")
    spool.put(b"")
    spool.put(packed(Died(made("t1"))))
    courier = Courier(spool, lambda: store)
    courier.end()
    await courier.run()
    assert await store.letters.count(Query()) == 1
    assert len(list((spool.directory / "refused").iterdir())) == 2
    assert not spool.waiting(10)


async def test_a_worker_that_forks_reports_from_both(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from redrive.integrations.reporter import Reporter
from tests.integrations.test_ground import made
reporter = Reporter(sys.argv[1], spool=sys.argv[2])
reporter.died(made("parent"))
pid = os.fork()
if pid == 0:
    reporter.died(made("child"))
    reporter.close(30)
    os._exit(0)
os.waitpid(pid, 0)
reporter.close(30)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, url_in(tmp_path), str(tmp_path / "spool"), cwd=Path(__file__).parents[2]
    )
    assert await process.wait() == 0
    assert {letter.message.id for letter in await all_letters(url_in(tmp_path))} == {"parent", "child"}


async def test_what_a_killed_worker_left_is_delivered_by_the_next(tmp_path: Path) -> None:
    Spool(tmp_path / "spool").put(packed(Died(made("left"))))
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    reporter.start()
    await until(lambda: waiting(reporter.directory) == 0, what="it is delivered")
    reporter.close()
    [letter] = await all_letters(url_in(tmp_path))
    assert letter.message.id == "left"


async def test_a_courier_that_is_a_process_ends_with_its_worker(tmp_path: Path) -> None:
    Spool(tmp_path / "spool").put(packed(Died(made("t1"))))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "redrive.integrations.courier",
        str(tmp_path / "spool"),
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, "REDRIVE_STORE": url_in(tmp_path)},
    )
    await until(lambda: waiting(tmp_path / "spool") == 0, what="it is delivered")
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0
    assert len(await all_letters(url_in(tmp_path))) == 1


def test_a_disk_that_takes_nothing_is_said_and_raises_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    reporter.directory.rmdir()
    assert not reporter.died(made("t1"))
    assert "'t1' from 'celery.tasks' could not be written" in caplog.text


async def test_on_a_full_disk_a_letter_is_written_whole_or_said_not_to_be(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from redrive.integrations.reporter import Reporter
from tests.integrations.test_ground import made
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
reporter = Reporter(sys.argv[1], spool=sys.argv[2])
reporter.delivers = False
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))  # a part of it can be written
assert not reporter.died(made("t1"))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert reporter.died(made("t2"))
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, url_in(tmp_path), str(tmp_path / "spool"), cwd=Path(__file__).parents[2]
    )
    assert await process.wait() == 0
    assert [file.suffix for file in (tmp_path / "spool").iterdir()] == [".report"], "nothing half is left"


def test_files_of_one_name_in_two_directories_have_two_spools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        places[name] = [default_directory("sqlite:///letters.db"), default_directory("sqlite:////srv/letters.db")]
    assert places["a"][0] != places["b"][0]
    assert places["a"][1] == places["b"][1]


def test_a_store_of_which_nobody_has_heard_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'postgresql'"):
        Reporter("postgresq://db/letters", spool=tmp_path)


def test_a_store_that_nobody_else_sees_and_a_spool_that_is_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this process alone"):
        Reporter("memory://")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="spool="):
        Reporter(url_in(tmp_path), spool=tmp_path / "file")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and directories that were asked to be on disk, by name."""
    names: list[str] = []
    fsync = os.fsync

    def spied(opened: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{opened}")).name)
        fsync(opened)

    monkeypatch.setattr(os, "fsync", spied)
    return names


def test_a_report_whose_message_is_acknowledged_next_is_on_disk_before(tmp_path: Path, synced: list[str]) -> None:
    spool = Spool(tmp_path / "spool")
    spool.put(b"x")
    [file] = spool.waiting(10)
    if filesystem_of(spool.directory) in ("ext4", "xfs"):
        assert synced == [file.name]  # under its last name: that is in the same journal
    else:
        assert synced == [f".{file.stem}", "spool"]


async def test_a_worker_whose_message_was_acknowledged_before_waits_for_no_disk(
    tmp_path: Path, synced: list[str]
) -> None:
    """While the store is away, the courier asks the disk for what waits, once for each report."""
    spool = Spool(tmp_path / "spool")
    spool.put(packed(Died(made("t1"))), waits=False)
    assert synced == []

    def away() -> MemoryStore:
        raise StoreUnavailable("store", "away")

    courier = Courier(spool, away)
    running = asyncio.create_task(courier.run())
    await until(lambda: synced == [spool.waiting(1)[0].name, "spool"], what="it is on disk")
    spool.put(packed(Died(made("t2"))), waits=False)
    await until(lambda: synced.count(spool.waiting(2)[1].name) == 1, what="so is the next")
    courier.end()
    await running
    assert synced.count(spool.waiting(1)[0].name) == 1


async def test_a_report_that_waited_for_no_disk_survives_the_kill_of_its_worker(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from redrive.integrations.reporter import Reporter
from tests.integrations.test_ground import made
reporter = Reporter(sys.argv[1], spool=sys.argv[2])
reporter.delivers = False
assert reporter.died(made("t1"), waits=False)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, url_in(tmp_path), str(tmp_path / "spool"), cwd=Path(__file__).parents[2]
    )
    assert await process.wait() == -signal.SIGKILL
    reporter = Reporter(url_in(tmp_path), spool=tmp_path / "spool")
    reporter.start()
    await until(lambda: waiting(reporter.directory) == 0, what="it is delivered")
    reporter.close()
    assert [letter.message.id for letter in await all_letters(url_in(tmp_path))] == ["t1"]
