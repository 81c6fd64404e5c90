"""`redrive token`: made once, listed, revoked."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from redrive.cli import main


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def test_the_life_of_a_token(cli: CliRunner) -> None:
    made = cli.invoke(main, ["token", "create", "--role", "operator", "--name", "ci", "--json"])
    assert made.exit_code == 0, made.output
    token = json.loads(made.stdout)
    assert token["token"].startswith(f"rdr_{token['id']}_")
    listed = cli.invoke(main, ["token", "list"])
    assert all(word in listed.stdout for word in (token["id"], "operator", "active", "never", "ci"))
    assert token["token"] not in listed.stdout
    assert cli.invoke(main, ["token", "revoke", token["id"]]).exit_code == 0
    (one,) = json.loads(cli.invoke(main, ["token", "list", "--json"]).stdout)["tokens"]
    assert one["revoked"] is True
    assert "digest" not in one


def test_only_the_token_is_on_stdout(cli: CliRunner) -> None:
    made = cli.invoke(main, ["token", "create", "--role", "viewer", "--name", "grafana"])
    assert made.stdout.strip().startswith("rdr_")
    assert len(made.stdout.split()) == 1
    assert "only now" in made.stderr


def test_what_is_wrong_is_said(cli: CliRunner) -> None:
    assert "operator" in cli.invoke(main, ["token", "create", "--role", "root", "--name", "x"]).stderr
    cli.invoke(main, ["token", "create", "--role", "viewer", "--name", "x"])
    gone = cli.invoke(main, ["token", "revoke", "nothing"])
    assert (gone.exit_code, "redrive token list" in gone.stderr) == (2, True)
