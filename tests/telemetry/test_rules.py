"""The alert rules of the core, and those of systems with them: promtool proves each."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from redrive.cli import main
from redrive.errors import UsageError
from redrive.systems.discover import systems
from redrive.telemetry.rules import joined
from tests.cli.conftest import place, shell
from tests.cli.world import Shell

__all__ = ["place", "shell"]
CASES = Path(__file__).parent / "rules_test.yml"


def promtool(folder: Path, *words: str) -> str:
    done = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts(text: str) -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", text, re.MULTILINE)


def test_each_rule_of_the_core_fires_does_not_fire_and_resolves(shell: Shell) -> None:
    shell.place.joinpath("rules.yml").write_text(shell("alert-rules").stdout)
    shutil.copy(CASES, shell.place)
    promtool(shell.place, "check", "rules", "rules.yml")
    promtool(shell.place, "test", "rules", "rules_test.yml")


def test_every_rule_has_a_case_that_fires_and_one_that_does_not(shell: Shell) -> None:
    cases = re.split(r"(?=alertname: )", CASES.read_text())
    for name in alerts(shell("alert-rules").stdout):
        mine = [case for case in cases if re.match(rf"alertname: {name}\b", case)]
        fired = ["exp_alerts" in case for case in mine]
        assert any(fired), f"{name} never fires"
        assert not fired[-1] or not all(fired), f"{name} never rests"
        assert fired.index(True) < len(fired) - 1, f"{name} never resolves"


def test_the_rules_of_every_system_are_one_file_with_those_of_the_core(shell: Shell) -> None:
    with_rules = [name for name, system in systems().items() if system.rules]
    assert len(with_rules) >= 5
    words = [word for name in ("core", *with_rules) for word in ("--system", name)]
    done = shell("alert-rules", *words, "--output", "all.yml")
    assert done.stdout == ""
    text = shell.place.joinpath("all.yml").read_text()
    assert f"{len(alerts(text))} rules found" in promtool(shell.place, "check", "rules", "all.yml")
    for name in ("RedriveStoreAway", "EmailDLQHighVolume", "FlowCHighDLQRate", "DLQGrowing", "FilesQueueNotHandled"):
        assert name in alerts(text)
    for name in with_rules:
        shutil.copy(Path(__file__).parents[1] / "systems" / name / "rules_test.yml", shell.place)
        shell.place.joinpath("rules.yml").write_text(text)
        promtool(shell.place, "test", "rules", "rules_test.yml")


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("", set()),
        ('[tickets]\nkafka = "kafka://other:9092"\n', {"FlowCHighDLQRate"}),
        ('[files]\nurl = "amqp://localhost"\n', {"FilesQueueNotHandled"}),
        ('store = "email+redis://localhost"\n', {"EmailDLQHighVolume"}),
        ('[transports]\nother = "workflow+sqlite:///w.db"\n', {"WorkflowDLQFilling"}),
    ],
)
def test_without_a_name_they_are_of_the_systems_that_are_configured(
    shell: Shell, settings: str, names: set[str]
) -> None:
    shell.place.joinpath("redrive.toml").write_text(settings)
    found = {name for name in alerts(shell("alert-rules").stdout) if not name.startswith("Redrive")}
    assert names <= found
    assert bool(found) == bool(names)


def test_a_system_that_nobody_knows_is_refused(shell: Shell) -> None:
    assert "no such system: did you mean 'tickets'?" in shell("alert-rules", "--system", "ticket", code=2).stderr
    assert "no such system" in shell("dashboard", "--system", "", code=2).stderr


def test_a_file_that_cannot_be_written_is_said_in_one_line(shell: Shell) -> None:
    done = shell("alert-rules", "--output", "nowhere/rules.yml", code=2)
    assert done.stderr == "Error: nowhere/rules.yml cannot be written: No such file or directory\n"
    assert list(shell.place.iterdir()) == []


def test_files_of_others_are_joined_however_they_are_indented(tmp_path: Path) -> None:
    flat = "# flat\ngroups:\n- name: flat\n  rules:\n  - alert: Flat\n    expr: >-\n      up\n      == 0\n"
    rule = "{alert: Deep, expr: up == 0}"
    deep = f"groups:  # deep\n\n      - name: deep\n# a comment\n        rules:\n          - {rule}\n"
    (tmp_path / "rules.yml").write_text(joined([("flat", flat), ("deep", deep)]))
    assert "2 rules found" in promtool(tmp_path, "check", "rules", "rules.yml")


@pytest.mark.parametrize("text", ["", "groups: []\n", "{groups: [{name: x, rules: []}]}"])
def test_what_cannot_be_joined_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="the rules of mine cannot be joined"):
        joined([("mine", text)])


def test_the_command_of_a_system_prints_what_it_printed() -> None:
    printed = CliRunner().invoke(main, ["files", "alert-rules"], prog_name="redrive").stdout
    assert alerts(printed) == ["FilesDeadLettersWaiting", "FilesDeadLettersGrowing", "FilesQueueNotHandled"]
