"""The line that installs an extra leads to where this Redrive came from."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from redrive import extras


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, "pip install 'redrive[redis]'"),
        ("no json", "pip install 'redrive[redis]'"),
        ({"url": "file:///home/ann/red%20rive", "dir_info": {}}, "pip install '/home/ann/red rive[redis]'"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "pip install -e '/src[redis]'"),
        ({"url": "file:///r.whl", "archive_info": {}}, "pip install 'redrive[redis] @ file:///r.whl'"),
        (
            {"url": "https://host/r.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'redrive[redis] @ git+https://host/r.git@abc'",
        ),
    ],
)
def test_it_says_where_to_take_it_from(monkeypatch: pytest.MonkeyPatch, origin: object, line: str) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            return origin if isinstance(origin, str | None) else json.dumps(origin)

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    assert extras.install("redis") == line


def test_a_redrive_that_is_not_installed_at_all_has_no_extras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nowhere(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", nowhere)
    assert extras.install("redis", "kafka") == "pip install 'redrive[redis,kafka]'"


def test_an_extra_of_what_an_extra_needs_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = {
        "redrive": ["click>=8", "fruit[juicy]>=1; extra == 'fruit'", "pear; (os_name != 'x') and extra == 'pears'"],
        "fruit": ["press>=2; extra == 'juicy'"],
    }
    there = {"fruit", "pear"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(metadata, "requires", lambda name: requires.get(name, []))
    monkeypatch.setattr(metadata, "version", version)
    extras.requirements.cache_clear()
    try:
        assert extras.missing_extras() == ["fruit"]
        there.add("press")
        assert extras.missing_extras() == []
    finally:
        extras.requirements.cache_clear()
