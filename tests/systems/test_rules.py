"""Every system prints its alert rules, and promtool proves them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from redrive.cli import main
from redrive.systems.discover import systems

OURS = ("email", "files", "pipeline", "tickets", "workflow")


@pytest.mark.parametrize("name", OURS)
def test_the_rules_of_a_system(name: str, tmp_path: Path) -> None:
    assert systems()[name].rules, "it names them"
    printed = CliRunner().invoke(main, [name, "alert-rules"], prog_name="redrive")
    assert printed.exit_code == 0, printed.output
    (tmp_path / "rules.yml").write_text(printed.stdout)
    shutil.copy(Path(__file__).parent / name / "rules_test.yml", tmp_path)
    for words in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
