"""The doctor names what is wrong, says how to mend it, and touches nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from redrive.doctor import files
from redrive.doctor.findings import Finding, Level
from redrive.flow.replay import KIND
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from tests.actors import acting
from tests.cli.world import Shell, World, letter


@pytest.fixture
def sound(world: World) -> World:
    """Nothing is wrong with it."""
    os.chmod("redrive.db", 0o600)
    world.shell("archive", "--state", "pending", "--yes")
    return world


def _wrong(shell: Shell, *words: str, code: int = 0) -> list[dict[str, Any]]:
    found = shell.json("doctor", *words, code=code)["findings"]
    return [one for one in found if one["level"] != "fine"]


def test_a_sound_place_is_all_well(sound: World) -> None:
    done = sound.shell("doctor", "--strict")
    assert "All is well." in done.stdout
    assert "sqlite:///redrive.db  (default)" in done.stdout
    assert "SQLite 3." in done.stdout
    assert sound.shell.json("doctor")["worst"] == "fine"


def test_where_nothing_is_nothing_is_made(shell: Shell) -> None:
    assert "is not there yet" in shell("doctor").stdout
    assert shell("doctor", "--strict", code=1)
    assert list(shell.place.iterdir()) == []


def test_where_each_value_came_from(sound: World, place: Path) -> None:
    place.joinpath("redrive.toml").write_text("concurrency = 3\n")
    settings = {one["path"]: one for one in sound.shell.json("doctor")["settings"]}
    assert (settings["concurrency"]["value"], settings["concurrency"]["source"]) == ("3", "redrive.toml")
    assert settings["grace"]["source"] == "default"


def test_what_an_app_says_in_its_code_is_what_counts(sound: World, place: Path) -> None:
    place.joinpath("coded.py").write_text("from redrive import Redrive\napp = Redrive(transport='sqlite:///code.db')\n")
    found = sound.shell.json("doctor", "--app", "coded:app")
    store = next(one for one in found["settings"] if one["path"] == "store")
    assert (store["value"], store["source"]) == ("sqlite:///code.db", "the app's code")


def test_an_unreachable_store_is_a_failure(shell: Shell, place: Path) -> None:
    place.joinpath("redrive.db").write_bytes(b"this is not a database, however long one looks at it" * 20)
    os.chmod("redrive.db", 0o600)
    (store, queue) = _wrong(shell, code=2)
    assert "is not a database" in store["text"]
    assert queue["about"] == "transports.default"


def test_a_missing_directory_is_a_failure(shell: Shell) -> None:
    (finding,) = _wrong(shell, "--store", "sqlite:///no/where.db", code=2)
    assert finding["mend"].startswith("mkdir -p")


def test_a_url_that_nobody_speaks_is_a_failure(sound: World) -> None:
    (finding,) = _wrong(sound.shell, "--store", "sqlit:///redrive.db", code=2)
    assert "did you mean 'sqlite'?" in finding["text"]
    (first, *_) = _wrong(sound.shell, "--store", "sqlite://redrive.db", code=2)
    assert "write sqlite:///relative/path.db" in first["text"]


def test_memory_forgets(sound: World) -> None:
    (finding,) = _wrong(sound.shell, "--store", "memory://")
    assert "they die with the process" in finding["text"]


def test_letters_and_queues_apart(sound: World) -> None:
    os.environ["REDRIVE_TRANSPORTS_DEFAULT"] = "sqlite:///queue.db"
    sound.shell("send", "orders", "x")
    os.chmod("queue.db", 0o600)
    (finding,) = (finding for finding in _wrong(sound.shell) if finding["about"] == "store")
    assert "different SQLite files" in finding["text"]


def test_a_file_that_others_can_read(sound: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sound.shell.place
    for one in folder.parents:
        if one.stat().st_uid == os.getuid() and not one.stat().st_mode & 0o001:
            one.chmod(one.stat().st_mode | 0o001)  # pytest's own folders are closed to others
    folder.chmod(0o755)
    os.chmod("redrive.db", 0o644)
    (finding,) = _wrong(sound.shell)
    assert "chmod 600" in finding["mend"]
    folder.chmod(0o700)
    assert _wrong(sound.shell) == []


def _looked_at(file: Path, mounts: Path = Path("/nowhere")) -> list[Finding]:
    file.touch(0o600)
    return list(files.sqlite_files({"store": f"sqlite:///{file}"}, mounts))


def test_a_network_file_system(tmp_path: Path) -> None:
    share, mounts = tmp_path / "share" / "a", tmp_path / "mounts"
    share.mkdir(parents=True)
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {share.parent} nfs4 rw 0 0\n")
    (finding,) = _looked_at(share / "redrive.db", mounts)
    assert finding.level is Level.FAILURE
    assert _looked_at(tmp_path / "redrive.db", mounts) == []


@pytest.mark.parametrize(("free", "level"), [(10 << 20, Level.FAILURE), (500 << 20, Level.WARNING), (9 << 30, None)])
def test_a_disk_that_is_nearly_full(
    free: int, level: Level | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    found = _looked_at(tmp_path / "redrive.db")
    assert [finding.level for finding in found] == ([] if level is None else [level])


def test_a_write_ahead_log_that_grew(tmp_path: Path) -> None:
    with (tmp_path / "big.db-wal").open("wb") as wal:
        wal.truncate(300 << 20)
    (finding,) = _looked_at(tmp_path / "big.db")
    assert "300 MiB" in finding.text


def test_messages_that_no_handler_waits_for(sound: World, place: Path) -> None:
    place.joinpath("shop.py").write_text(
        "from redrive import Redrive\napp = Redrive()\n@app.handler('orders')\ndef charge(order: dict) -> None: ...\n"
    )
    sound.shell("send", "ordrs", "x")
    (finding,) = _wrong(sound.shell, "--app", "shop:app")
    assert "1 messages wait in 'ordrs'" in finding["text"]
    assert "did you mean 'orders'?" in finding["mend"]
    (finding,) = _wrong(sound.shell)
    assert finding["text"] == "1 messages wait in 'ordrs', and nobody handles any"
    assert "redrive run MODULE:APP" in finding["mend"]
    assert "redrive doctor --app" in finding["mend"]


def test_messages_for_a_handler_whose_worker_does_not_run_and_for_others_who_do_not_either(
    sound: World, place: Path
) -> None:
    place.joinpath("shop.py").write_text(
        "from redrive import Redrive\napp = Redrive()\napp.declare('mails')\n"
        "@app.handler('orders')\ndef charge(order: dict) -> None: ...\n"
    )
    for source in ("orders", "mails"):
        sound.shell("send", source, "x")
    found = _wrong(sound.shell, "--app", "shop:app")
    assert [finding["text"] for finding in found] == [
        f"1 messages wait in {source!r}, and nobody handles any" for source in ("mails", "orders")
    ]


def test_messages_that_somebody_handles_wait_for_nobody(sound: World) -> None:
    sound.shell("send", "orders", "x")
    sound.shell("send", "orders", "y")

    async def taken(service: Service) -> None:
        [leased] = await service.app.transport().receive("orders", limit=1)
        assert leased.message.body == b"x"

    sound.shell.ask(taken)
    assert _wrong(sound.shell) == []


def test_letters_that_everybody_forgot(sound: World) -> None:
    waiting = letter(20, age=timedelta(days=2))
    soon = msgspec.structs.replace(letter(21, age=timedelta(days=2)), next_retry_at=datetime.now(UTC))
    sound.shell.keep([waiting, soon, letter(22)])
    (finding,) = _wrong(sound.shell)
    assert finding["text"].startswith("1 pending for more than a day")
    command = finding["mend"].split("`redrive ")[1].split("`")[0].split()
    assert sound.shell(*command)


def test_letters_that_are_stuck(sound: World) -> None:
    old = letter(20, age=timedelta(hours=3), state=State.REPLAYING)
    sound.shell.keep([old, letter(21, state=State.RETRYING)])
    (finding,) = _wrong(sound.shell)
    assert finding["text"].startswith("1 of orders retrying or replaying for more than an hour")


def test_a_replay_that_nobody_runs(sound: World) -> None:
    sound.shell.keep([letter(20)])

    async def abandoned(service: Service) -> str:
        replay = await service.replay(Query(message_ids=("m20",)), actor=acting("somebody"))
        document = await service.app.store.documents.get(KIND, replay.id)
        assert document is not None
        return replay.id

    id = sound.shell.ask(abandoned)
    (finding,) = _wrong(sound.shell)
    assert finding["mend"] == f"redrive replays resume {id}"
    sound.shell(*finding["mend"].split()[1:])
    assert [one for one in _wrong(sound.shell) if one["about"] == "replays"] == []


def test_an_open_door_without_a_key(sound: World) -> None:
    os.environ["REDRIVE_ADMIN_HOST"] = "0.0.0.0"
    (finding,) = _wrong(sound.shell, code=2)
    sound.shell(*finding["mend"].split()[1:])
    assert _wrong(sound.shell) == []


def test_more_and_more_letters(sound: World) -> None:
    with sqlite3.connect("redrive.db") as connection:
        connection.execute("UPDATE tallies SET count = 100001 WHERE state = 'archived'")
    connection.close()
    (finding,) = _wrong(sound.shell)
    assert "retention.ttl" in finding["mend"]
    os.environ["REDRIVE_RETENTION_TTL"] = "30d"
    assert _wrong(sound.shell) == []


def test_the_service_has_a_doctor_too(sound: World) -> None:
    assert sound.shell.ask(lambda service: service.doctor()).worst is Level.FINE


# -- config ------------------------------------------------------------------------------------------------------


def test_config_prints_every_setting_and_where_it_came_from(shell: Shell, place: Path) -> None:
    place.joinpath("redrive.toml").write_text("store = 'redis://user:hunter2@host'\n[admin]\nport = 9000\n")
    os.environ["REDRIVE_GRACE"] = "5s"
    found = {one["path"]: one for one in shell.json("config")["settings"]}
    assert (found["admin.port"]["value"], found["admin.port"]["source"]) == ("9000", "redrive.toml")
    assert (found["grace"]["value"], found["grace"]["source"]) == ("5s", "environment")
    assert found["lease"]["environ"] == "REDRIVE_LEASE"
    shown = shell("config").stdout
    assert "hunter2" not in shown
    assert all(name in shown for name in found)


def test_a_typo_in_a_setting_names_the_nearest(shell: Shell, place: Path) -> None:
    place.joinpath("redrive.toml").write_text("concurency = 3\n")
    assert "did you mean 'concurrency'?" in shell("config", code=2).stderr
    assert "no configuration file" in shell("--config", "nowhere.toml", "letters", code=2).stderr


def test_the_option_wins_over_every_setting(shell: Shell) -> None:
    os.environ["REDRIVE_STORE"] = "sqlite:///a.db"
    found = {one["path"]: one for one in shell.json("config", "--store", "sqlite:///b.db")["settings"]}
    assert (found["store"]["value"], found["store"]["source"]) == ("sqlite:///b.db", "--store")
    assert found["transports.default"]["value"] == "sqlite:///b.db"
