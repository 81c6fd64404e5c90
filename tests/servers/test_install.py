"""What installing promises: whole or absent, once, one at a time, and the machine left as it was."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.servers import cache, debian, install
from tests.servers.cache import Artefact
from tests.servers.catalogue import CATALOGUE, Entry
from tests.servers.errors import InstallError
from tests.servers.manifest import sha256, verify_lock
from tests.servers.needs import Needs
from tests.servers.steps import Steps, Stopped
from tests.servers.tools import Tool

REPOSITORY = Path(__file__).parents[2]
# An install whose one build never ends, and tells the process that its command started.
ENDLESS = """
import sys
from tests.servers import __main__, cache, catalogue, needs
build = lambda *_: cache.run_step("endless", ["sh", "-c", "sleep 600 & echo $! > " + sys.argv[1] + "; wait"])
artefact = cache.Artefact("endless", "1", build)
catalogue.CATALOGUE["endless"] = catalogue.Entry(needs.Needs(artefacts=(artefact,)), "1")
sys.exit(__main__.main(["install", "endless"]))
"""


class Toy:
    """A server of one file, which remembers how often it was built."""

    def __init__(self, name: str = "toy") -> None:
        self.builds = 0
        self.fails = False
        self.begun = Event()
        self.may_end = Event()
        self.may_end.set()
        self.artefact = Artefact(name, "1", self.build)

    def build(self, target: Path, work: Path) -> None:
        self.builds += 1
        (work / "cache").write_text("bulky")
        (target / "toy").write_text("binary")
        self.begun.set()
        if self.fails or not self.may_end.wait(30):
            raise InstallError("toy: the build failed")

    @property
    def binary(self) -> Path:
        return self.artefact.path / "toy"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toy:
    toy = Toy()
    monkeypatch.setenv("REDRIVE_SERVERS_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(CATALOGUE, "toy", Entry(Needs(artefacts=(toy.artefact,)), "1"))
    return toy


def test_installing_twice_builds_once_and_keeps_only_the_result(toy: Toy) -> None:
    install.install(["toy"])
    install.install(["toy"])
    assert toy.builds == 1
    assert toy.binary.read_text() == "binary"
    assert list((cache.home() / "tmp").glob("*")) == []


@pytest.mark.parametrize("damage", ["bin", "BINARY"])
def test_a_damaged_file_is_built_again(toy: Toy, damage: str) -> None:
    install.install(["toy"])
    toy.binary.write_text(damage)
    install.install(["toy"])
    assert toy.builds == 2
    assert toy.binary.read_text() == "binary"


def test_a_file_that_was_only_copied_is_not_built_again(toy: Toy) -> None:
    install.install(["toy"])
    os.utime(toy.binary, (0, 0))
    install.install(["toy"])
    assert toy.builds == 1


def test_new_inputs_make_it_stale(toy: Toy) -> None:
    install.install(["toy"])
    assert not Artefact("toy", "1", toy.build, inputs=lambda: "another Java").is_intact()


def test_a_build_that_fails_leaves_nothing(toy: Toy) -> None:
    toy.fails = True
    with pytest.raises(InstallError, match="toy"):
        install.install(["toy"])
    assert not toy.artefact.path.exists()
    assert list((cache.home() / "tmp").glob("*")) == []


def test_what_a_killed_install_left_is_removed_by_the_next(toy: Toy) -> None:
    leftover = cache.home() / "tmp" / "toy-4711" / "target"
    leftover.mkdir(parents=True)
    install.install(["toy"])
    assert not leftover.exists()


def test_two_installs_at_once_build_once(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Event()
    monkeypatch.setattr(cache, "say", lambda _, step: waiting.set() if "waiting" in step else None)
    toy.may_end.clear()
    with ThreadPoolExecutor() as threads:
        first = threads.submit(install.install, ["toy"])
        assert toy.begun.wait(30)
        second = threads.submit(install.install, ["toy"])
        assert waiting.wait(30)
        toy.may_end.set()
        first.result(30)
        second.result(30)
    assert toy.builds == 1


def test_what_does_not_wait_for_another_is_built_beside_it(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Toy("other")
    monkeypatch.setitem(CATALOGUE, "other", Entry(Needs(artefacts=(other.artefact,)), "1"))
    toy.may_end, other.may_end = other.begun, toy.begun  # neither ends before the other has begun
    install.install(["toy", "other"])
    assert (toy.builds, other.builds) == (1, 1)


def test_what_waits_for_another_is_built_after_it(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    was_there = []
    later = Artefact("later", "1", lambda *_: was_there.append(toy.artefact.is_intact()), after=(toy.artefact,))
    monkeypatch.setitem(CATALOGUE, "later", Entry(Needs(artefacts=(later,)), "1"))
    install.install(["later"])
    assert (toy.builds, was_there) == (1, [True])


def test_apt_brings_the_tools_of_a_build_before_it(toy: Toy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def bring(_: str, packages: Sequence[str]) -> None:
        asked.extend(packages)
        (tmp_path / "maven").touch()

    monkeypatch.setattr(debian, "missing", list)
    monkeypatch.setattr(debian, "install", bring)
    artefact = Artefact("jars", "1", toy.build, tools=(Tool(str(tmp_path / "maven"), "maven"),))
    monkeypatch.setitem(CATALOGUE, "jars", Entry(Needs(packages=("libjars",), artefacts=(artefact,)), "1"))
    install.install(["jars"])
    assert sorted(asked) == ["libjars", "maven"]
    assert artefact.is_intact()


def test_the_first_failure_ends_what_runs_beside_it(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Artefact("endless", "1", lambda *_: cache.run_step("endless", ["sh", "-c", "sleep 600 & wait"]))
    monkeypatch.setitem(CATALOGUE, "endless", Entry(Needs(artefacts=(endless,)), "1"))
    toy.fails = True
    with pytest.raises(InstallError, match="toy: the build failed"):
        install.install(["endless", "toy"])
    assert list((cache.home() / "tmp").glob("*")) == []
    toy.fails = False
    install.install(["toy"])  # the next one is not hindered
    assert toy.binary.exists()


def test_ctrl_c_ends_the_commands_that_run_and_all_they_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    env = {**os.environ, "REDRIVE_SERVERS_HOME": str(tmp_path / "home")}
    installing = subprocess.Popen([sys.executable, "-c", ENDLESS, tmp_path / "pid"], cwd=REPOSITORY, env=env)
    grandchild = os.pidfd_open(int((tmp_path / "pid").read_text()))
    installing.send_signal(signal.SIGINT)
    assert installing.wait(60) == 130
    assert select.select([grandchild], [], [], 60)[0]
    os.close(grandchild)


def test_apt_half_way_is_not_killed(tmp_path: Path) -> None:
    steps, done = Steps(), tmp_path / "done"
    with (tmp_path / "log").open("w") as log, ThreadPoolExecutor() as threads:
        os.mkfifo(tmp_path / "go")
        command = ["sh", "-c", f"read line < {tmp_path / 'go'}; touch {done}"]
        step = threads.submit(steps.run, command, log, may_be_killed=False)
        with (tmp_path / "go").open("w") as go:  # opens when the command reads it
            steps.end()
            go.write("on\n")
        assert step.result(60) == 0
        with pytest.raises(Stopped):
            steps.run(["true"], log)
    assert done.exists()


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(InstallError, match="postgres: no such server; there are redis"):
        install.install(["postgres"])


def test_status_shows_what_is_lacking(toy: Toy) -> None:
    assert "toy           1           lacks toy-1" in install.status()
    install.install(["toy"])
    assert "toy           1           ready" in install.status()


def test_a_failing_step_names_the_server_and_quotes_its_output(toy: Toy) -> None:
    with pytest.raises(InstallError, match=r"(?s)^toy: `sh -c .*no route to registry.*run make servers again"):
        cache.run_step("toy", ["sh", "-c", "echo no route to registry; exit 3"])


def test_a_missing_tool_is_named_with_its_package_and_the_way_around() -> None:
    with pytest.raises(InstallError, match=r"^kafka: needs `gone` on PATH; .* gone-jre,.*REDRIVE_SERVERS=none.*$"):
        Tool("gone", "gone-jre").require("kafka")


@pytest.mark.parametrize("wrong", ["changed", "absent", "extra"])
def test_a_lock_admits_exactly_its_files(tmp_path: Path, wrong: str) -> None:
    folder = tmp_path / "fetched"
    folder.mkdir()
    file = folder / "server.jar"
    file.write_text("code")
    lock = tmp_path / "toy.sha256"
    lock.write_text(f"{sha256(file)}  server.jar\n")
    verify_lock(folder, lock)
    match wrong:
        case "changed":
            file.write_text("other code")
        case "absent":
            file.unlink()
        case "extra":
            file.rename(folder / "unknown.jar")
    with pytest.raises(InstallError, match=r"\.jar: not the file pinned in toy\.sha256"):
        verify_lock(folder, lock)


def test_what_debian_does_not_give_is_named_in_the_first_line(monkeypatch: pytest.MonkeyPatch, policy: Path) -> None:
    monkeypatch.setattr(debian, "missing", list)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("REDRIVE_SERVERS_HOME", str(policy.parent))
    monkeypatch.setattr(debian, "APT", ("sh", "-c", "echo no route to Debian; exit 100"))
    with pytest.raises(InstallError) as failed:
        debian.install("debian", ["openjdk-17-jre-headless", "maven"])
    first, *rest = str(failed.value).splitlines()
    assert first.startswith("openjdk-17-jre-headless, maven: Debian does not give them")
    assert first.endswith("REDRIVE_SERVERS=none make test")
    assert "no route to Debian" in rest
    assert not policy.exists()


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(debian, "POLICY", policy)
    monkeypatch.setattr(debian, "ASIDE", tmp_path / "aside")
    return policy


def test_without_a_policy_of_its_own_the_machine_has_none_afterwards(policy: Path) -> None:
    with debian.daemons_held_back():
        assert policy.read_text().endswith("exit 101\n")
        assert os.access(policy, os.X_OK)
    assert not policy.exists()


@pytest.mark.parametrize("killed_before", [False, True])
def test_the_policy_of_the_machine_is_back_as_it_was(policy: Path, killed_before: bool) -> None:
    policy.write_text("#!/bin/sh\nexit 104\n")
    policy.chmod(0o700)
    if killed_before:
        debian.daemons_held_back().__enter__()
    with debian.daemons_held_back():
        assert policy.read_text() == debian.NO_DAEMONS
    assert policy.read_text() == "#!/bin/sh\nexit 104\n"
    assert policy.stat().st_mode & 0o777 == 0o700


def test_who_is_not_root_is_told_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "missing", list)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InstallError, match=r"^redis: run as root: apt-get .*redis-server, .*REDRIVE_SERVERS=none.*$"):
        debian.install("redis", ["redis-server"])


def test_apt_is_left_alone_when_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "missing", lambda _: [])
    monkeypatch.setattr(debian, "run_step", lambda *_, **__: pytest.fail("apt-get was called"))
    debian.install("redis", ["redis-server"])
