"""`redrive email` as an operator uses it: the three scenarios of the runbook, and the rest."""

from __future__ import annotations

import asyncio
import email
import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as Client

from redrive.config.load import read
from redrive.config.settings import Settings
from redrive.systems.email import EmailGateway, validate_dlq_entry
from redrive.systems.email.dlq import dlq_url
from redrive.systems.email.settings import EmailSettings
from redrive.testing.waiting import until
from tests.admin.process import Process, redrive
from tests.cli.world import Shell
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis
from tests.systems.email.jobs import job
from tests.systems.email.mailserver import Mailbox


def queued() -> int:
    async def asked() -> int:
        async with EmailGateway(read(Path("redrive.toml")).settings) as gateway:
            depths = await gateway.app.transport().depths()
            return depths["email:send"].total if depths else 0

    return asyncio.run(asked())


@pytest.mark.usefixtures("letters")
def test_scenario_1_the_dlq_grows(shell: Shell) -> None:
    by_code = shell("email", "dlq", "stats", "--by", "code").stdout.split()
    assert by_code[by_code.index("4") : by_code.index("4") + 6] == ["4", "421", "2", "550", "1", "554"]
    assert shell.json("email", "dlq", "stats", "--by", "company") == {"acme": 5, "umbrella": 1, "old": 1}
    listed = shell.json("email", "dlq", "list", "--code", "421", "--company", "acme")
    assert [validate_dlq_entry(entry).lastFailureCode for entry in listed] == ["421"] * 4
    said = shell("email", "reprocess", "--code", "421", "--yes").stderr
    assert "sent 4" in said
    assert queued() == 4
    assert "on its way already" in shell("email", "reprocess", "--code", "421", "--yes", code=1).stderr
    assert queued() == 4


@pytest.mark.usefixtures("letters")
def test_scenario_2_redis_is_nearly_full(shell: Shell, redis_url: str) -> None:
    told = shell.json("email", "status")
    assert (told["waiting"], told["active"], told["delayed"], told["dlq"]) == (0, 0, 0, 7)
    assert told["memory"]["most"] == 512 * 2**20
    assert "of 512 MiB" in shell("email", "status").stdout
    assert "7 letters exported" in shell("email", "export", "dlq.jsonl").stderr
    assert "is there already" in shell("email", "export", "dlq.jsonl", code=2).stderr
    assert len(Path("dlq.jsonl").read_text().splitlines()) == 7
    assert "say which" in shell("email", "trim", "--yes", code=2).stderr
    assert (
        "1 letter exported to email-dlq.jsonl and removed"
        in shell("email", "trim", "--older-than", "30d", "--yes").stderr
    )
    (line,) = Path("email-dlq.jsonl").read_text().splitlines()
    assert json.loads(line)["letter"]["message"]["id"] == "o-6"
    with Client.from_url(redis_url) as client:
        assert client.zcard("email:send:dlq") == 6
    assert "nothing was removed" in shell("email", "trim", "--older-than", "30d", "--yes", code=1).stderr


@pytest.mark.usefixtures("letters")
def test_a_trim_is_written_down_and_waits_for_a_second_person(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    store = dlq_url(read(Path("redrive.toml")).settings.of(EmailSettings))
    words = ("email", "trim", "--older-than", "30d", "--yes")
    with monkeypatch.context() as careful:
        careful.setenv("REDRIVE_ACCESS_APPROVE_OVER", "0")
        assert "waits for a second person" in shell(*words, code=None).stderr
    assert not Path("email-dlq.jsonl").exists(), "nothing was exported, and nothing removed"
    shell(*words)
    told = [(act["action"], act["outcome"]) for act in shell.json("--store", store, "audit")["audit"]]
    assert told == [("trim", "done"), ("trim", "waits")]


def test_scenario_3_a_company_has_all_the_turns(shell: Shell) -> None:
    assert "no company has had a job yet" in shell("email", "fairness").stdout
    Path("jobs.json").write_text(json.dumps([job("a-1", "acme"), job("b-1", "umbrella")]))
    assert shell("email", "add", "jobs.json").stdout.split() == ["a-1", "b-1"]
    turns = shell.json("email", "fairness")
    assert {one["companyId"] for one in turns} == {"acme", "umbrella"}
    for one in turns:
        assert (one["roundsWithoutProcessing"], one["currentPriority"], one["totalProcessed"]) == (0, 5, 0)
        assert one["consecutiveBatchCount"] == 0
    assert "COMPANY" in shell("email", "fairness").stdout


@pytest.mark.usefixtures("letters")
def test_an_entry_is_shown_as_it_is_in_redis(shell: Shell, redis_url: str) -> None:
    shown = json.loads(shell("email", "dlq", "show", "o-4").stdout)
    with Client.from_url(redis_url) as client:
        found: Any = client.zrange("email:send:dlq", 0, -1)
    assert shown in [json.loads(one) for one in found]
    assert "umbrella" in shell("email", "dlq", "list", "--company", "umbrella").stdout
    assert "no entry matches" in shell("email", "dlq", "list", "--code", "999", code=1).stderr
    assert "no letter 'nobody'" in shell("email", "dlq", "show", "nobody", code=1).stderr


@pytest.mark.usefixtures("letters")
def test_one_many_or_all_are_reprocessed_and_never_by_accident(shell: Shell) -> None:
    assert "which jobs?" in shell("email", "reprocess", "--yes", code=2).stderr
    assert "nobody is there to answer" in shell("email", "reprocess", "--all", code=2).stderr
    assert "no entry of the DLQ matches" in shell("email", "reprocess", "nobody", "--yes", code=1).stderr
    shell("email", "reprocess", "o-0", "o-5", "--yes")
    assert queued() == 2
    shell("email", "reprocess", "--all", "--yes")
    assert queued() == 7


def test_an_empty_dlq_is_no_error_of_ours(shell: Shell) -> None:
    assert "the DLQ is empty" in shell("email", "dlq", "list", code=1).stderr
    assert "0 in the DLQ" in shell("email", "dlq", "stats").stdout
    assert "no entry of the DLQ matches" in shell("email", "reprocess", "--all", "--yes", code=1).stderr


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (json.dumps(job("one")), ["one"]),
        (json.dumps(job("one"), indent=2), ["one"]),
        ("\n".join(json.dumps(job(f"l-{number}")) for number in range(3)), ["l-0", "l-1", "l-2"]),
        (json.dumps([job("x"), job("y")]), ["x", "y"]),
    ],
)
def test_jobs_are_added_from_a_file_or_stdin(shell: Shell, text: str, ids: list[str]) -> None:
    Path("job.json").write_text(text)
    assert shell("email", "add", "job.json").stdout.split() == ids
    assert shell("email", "add", "-", input=text).stdout.split() == ids
    assert queued() == len(ids)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[{]", json.dumps(job(to="nobody")), json.dumps([job("a"), job("b", to="")])]
)
def test_what_is_no_job_is_not_added(shell: Shell, text: str) -> None:
    Path("job.json").write_text(text)
    assert "job.json is no" in shell("email", "add", "job.json", code=2).stderr
    assert queued() == 0


def test_a_pause_is_for_all_workers(shell: Shell) -> None:
    assert "paused" in shell("email", "pause").stderr
    assert "resumed" in shell("email", "resume").stderr


def test_the_files_for_other_programs_are_printed(shell: Shell) -> None:
    conf = shell("email", "redis-conf").stdout
    for wanted in ("appendonly yes", "appendfsync everysec", "maxmemory 512mb", "maxmemory-policy noeviction"):
        assert f"\n{wanted}\n" in conf
    assert "alert: EmailDLQHighVolume" in shell("email", "alert-rules").stdout


def test_the_printed_configuration_is_one_that_redis_takes_and_we_trust(
    shell: Shell, start_server: StartsServer
) -> None:
    conf = shell("email", "redis-conf").stdout

    class Configured(Redis):
        def prepare(self) -> None:
            super().prepare()
            own = [line for line in self.config.read_text().splitlines() if line.split()[0] in ("bind", "port", "dir")]
            self.config.write_text("\n".join([*own, conf]))

    server = start_server(Configured)
    Path("redrive.toml").write_text(f'[email]\nredis = "{server.url}"\n')
    assert shell.json("email", "status")["memory"]["most"] == 512 * 2**20


def test_a_redis_that_evicts_is_refused_with_the_line_that_mends_it(shell: Shell, start_server: StartsServer) -> None:
    server = start_server(Redis)
    with Client.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    Path("redrive.toml").write_text(f'[email]\nredis = "{server.url}"\nsender = "smtp://127.0.0.1:1"\n')
    done = shell.process("email", "worker", code=2)
    assert b"put `maxmemory-policy noeviction` into redis.conf" in done.stderr
    Path("job.json").write_text(json.dumps(job()))
    assert "noeviction" in shell("email", "add", "job.json", code=2).stderr


async def test_a_worker_sends_is_scraped_and_stops(
    tmp_path: Path, redis_url: str, mailbox: Mailbox, smtp_url: str
) -> None:
    mailbox.once["ana@example.com"] = ["421 busy"]
    mailbox.always["bob@example.com"] = "550 no"
    (tmp_path / "redrive.toml").write_text(
        f'[email]\nredis = "{redis_url}"\nsender = "{smtp_url}"\nbase_delay = "20ms"\nmax_delay = "20ms"\n'
    )
    settings = Settings(sections=(EmailSettings(redis=redis_url),))
    async with EmailGateway(settings) as producer:
        await producer.add_all([job("o-1"), job("o-2", to="bob@example.com")])
    async with redrive(tmp_path, "email", "worker", "--metrics-port", "0") as worker:
        url = (await worker.line(r"metrics +(http://\S+)"))[1]
        await until(lambda: mailbox.recipients == ["ana@example.com"])
        await until(lambda: _scrape_has(url, "dlq_entries_total 1.0"))
        text = await _scraped(url)
        mailbox.always.clear()
        async with redrive(tmp_path, "email", "reprocess", "o-2", "--yes", "--wait") as reprocess:
            assert await reprocess.end() == 0, await reprocess.errors()
        assert await worker.end(signal.SIGINT) == 0
        lines = await _logged(worker)
    assert "redrive_messages_total" in text
    assert sorted(mailbox.recipients) == ["ana@example.com", "bob@example.com"]
    assert [(line["jobId"], line["attempt"], line["errorCode"]) for line in lines] == [
        ("o-1", 1, "421"),
        ("o-2", 1, "550"),
    ]


async def _scraped(url: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(fetch)


async def _scrape_has(url: str, line: str) -> bool:
    return line in (await _scraped(url)).splitlines()


async def _logged(worker: Process) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (await worker.errors()).splitlines() if line.startswith("{")]
    return sorted((line for line in found if "jobId" in line), key=lambda line: str(line["jobId"]))


async def test_a_worker_that_is_killed_while_it_sends_loses_nothing(
    tmp_path: Path, redis_url: str, mailbox: Mailbox, smtp_url: str
) -> None:
    mailbox.data.append("hang")
    (tmp_path / "redrive.toml").write_text(f'lease = "1s"\n[email]\nredis = "{redis_url}"\nsender = "{smtp_url}"\n')
    async with EmailGateway(Settings(sections=(EmailSettings(redis=redis_url),))) as producer:
        await producer.add_all([job("o-1"), job("o-2")])
    async with redrive(tmp_path, "email", "worker") as killed:
        await mailbox.hanging.wait()
        await until(lambda: len(mailbox.delivered) == 1)
        await killed.end(signal.SIGKILL)
    async with redrive(tmp_path, "email", "worker") as worker:
        await until(lambda: sent(mailbox) == {"<o-1@example.org>", "<o-2@example.org>"})
        assert await worker.end(signal.SIGTERM) == 0


def sent(mailbox: Mailbox) -> set[str]:
    return {str(email.message_from_bytes(content)["Message-ID"]) for _, _, content in mailbox.delivered}
