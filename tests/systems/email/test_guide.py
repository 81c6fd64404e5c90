"""The page of the e-mail system and its example do what they say, on a real Redis."""

from __future__ import annotations

import json
import runpy
import shlex
from pathlib import Path

import pytest

from redrive.systems.email import read_job
from redrive.systems.email.metrics import EmailMetrics
from tests.cli.world import Shell
from tests.docs.samples import DOCS, ROOT, blocks

PAGE = DOCS / "systems" / "email.md"
_STAYS = ("redrive email worker",)
_OTHERS = ("redis-cli ",)


def commands() -> list[str]:
    """Every shell command of the page, in order."""
    return [line for block in blocks(PAGE) if block.language == "sh" for line in block.commands]


@pytest.mark.usefixtures("letters")
def test_every_command_of_the_page_runs_as_it_is_written(shell: Shell, redis_url: str) -> None:
    (job,) = [block.text for block in blocks(PAGE) if block.language == "json"]
    Path("job.json").write_text(job)
    asked = [one for one in commands() if not one.startswith((*_STAYS, *_OTHERS))]
    assert len(asked) >= 16
    for command in asked:
        words = shlex.split(command.partition(" > ")[0])[1:]
        words = [redis_store(word, redis_url) if "://" in word else "o-5" if word == "JOB" else word for word in words]
        done = shell(*words, code=None)
        assert done.exit_code in (0, 1), (command, done.stderr)
        assert done.exit_code == 0 or "on its way already" in done.stderr, (command, done.stderr)


def redis_store(word: str, url: str) -> str:
    return word.replace("redis://127.0.0.1:6379/0", url)


def test_the_job_of_the_page_is_one() -> None:
    (text,) = [block.text for block in blocks(PAGE) if block.language == "json"]
    assert read_job(text.encode()).recipients == ("ana@example.com",)
    assert list(json.loads(text))[:2] == ["outboxId", "companyId"]


@pytest.mark.usefixtures("shell")
def test_the_producer_of_the_page_adds_a_job(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = [block.text for block in blocks(PAGE) if block.file == "producer.py"]
    monkeypatch.setenv("REDRIVE_EMAIL_REDIS", redis_url)
    Path("producer.py").write_text(text)
    runpy.run_path("producer.py", run_name="__main__")
    assert Shell(Path.cwd()).json("email", "status")["waiting"] == 1


def test_every_metric_is_on_the_page() -> None:
    names = {family.name for family in EmailMetrics("email:send").collect()}
    text = PAGE.read_text()
    assert all(name in text for name in names)


def test_the_example_shows_a_retry_a_burial_and_a_resolution(
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REDRIVE_EMAIL_REDIS", redis_url)
    runpy.run_path(str(ROOT / "examples" / "email_gateway.py"), run_name="__main__")
    shown = capsys.readouterr().out
    for line in ("retry     acme-4", "buried    umb-0", "resolved  it has left the DLQ"):
        assert line in shown
    assert shown.count("sent ") >= 6
