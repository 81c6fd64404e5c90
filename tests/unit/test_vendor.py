"""The console's libraries are exactly what was fetched and pinned."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools import vendor


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = Path(shutil.copytree(vendor.VENDOR, tmp_path / "vendor"))
    monkeypatch.setattr(vendor, "VENDOR", made)
    return made


def test_what_is_in_the_tree_is_what_was_pinned(copy: Path) -> None:
    assert vendor.wrong() == []
    assert vendor.main(["--check"]) == 0


def test_a_changed_a_missing_and_a_strange_file_are_named(copy: Path) -> None:
    with (copy / "preact.js").open("a") as file:
        file.write("\n")
    (copy / "htm.LICENSE").unlink()
    (copy / "extra.js").write_text("export {};")
    assert vendor.wrong() == [
        "extra.js is not of a pinned package",
        "htm.LICENSE is missing",
        "preact.js is not as it was fetched",
    ]
    assert vendor.main(["--check"]) == 1


def test_every_import_of_a_library_is_a_file_beside_it() -> None:
    for script in vendor.VENDOR.glob("*.js"):
        for found in vendor.IMPORT.finditer(script.read_text()):
            assert (vendor.VENDOR / found[3]).is_file(), (script.name, found[3])


def test_a_library_that_imports_what_is_not_vendored_is_refused() -> None:
    with pytest.raises(SystemExit, match="imports 'react'"):
        vendor.served("x.js", b'import{h}from"react";')
