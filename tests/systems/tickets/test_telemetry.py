"""What the tickets tell: metrics under the contract's names, its three rules, and an alert in a real Alertmanager."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from msgspec.structs import replace

import redrive.systems.tickets
from redrive.forensics.query import Query
from redrive.model import OPEN, State
from redrive.systems.tickets.metrics import measured
from redrive.systems.tickets.ticket import TaskTypes
from redrive.testing.waiting import until
from tests.servers.fixtures import StartsMonitor
from tests.servers.prometheus import Alertmanager
from tests.systems.tickets.conftest import MakesWorld
from tests.systems.tickets.world import World, failing

HERE = Path(__file__).parent
RULES = Path(redrive.systems.tickets.__file__).parent / "rules.yml"


def test_the_three_rules_are_right(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    shutil.copy(HERE / "rules_test.yml", tmp_path)
    for words in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"alert: (\w+)", RULES.read_text()) == [
        "FlowCDLQMessagesAccumulating",
        "FlowCHighDLQRate",
        "FlowCDLQPublishFailures",
    ]


async def test_metrics_have_the_names_of_the_contract(world: World) -> None:
    world.send(1, 2)
    world.main.produce((b"k", b"not JSON"))
    async with world.worker(failing) as worker:
        metrics = measured(worker)
        await world.main.until_committed(3)
        text = metrics.render(None).decode()
    assert 'worker_agent_dlq_messages_total{reason="max_retries_exceeded",task_type="BUILD"} 2.0' in text
    assert 'worker_agent_dlq_messages_total{reason="invalid_ticket",task_type="UNKNOWN"} 1.0' in text
    assert 'worker_agent_ticket_retry_count_bucket{le="1.0"} 1.0' in text
    assert 'worker_agent_ticket_retry_count_bucket{le="3.0"} 3.0' in text
    assert "# TYPE worker_agent_dlq_publish_errors_total counter" in text


async def test_the_distribution_of_retry_counts_has_each_ticket_once(world: World) -> None:
    world.send("at once", "at the second go", "never")
    runs: Counter[str] = Counter()

    async def handle(ticket: dict[str, Any]) -> None:
        runs[ticket["ticket_id"]] += 1
        if ticket["ticket_id"] != world.id("at once") and runs[world.id("at the second go")] < 2:
            raise TimeoutError("no")
        if ticket["ticket_id"] == world.id("never"):
            raise TimeoutError("never")

    async with world.worker(handle) as worker:
        metrics = measured(worker)
        await world.main.until_committed(3)
        text = metrics.render(None).decode()
    counts = re.findall(r'worker_agent_ticket_retry_count_bucket{le="(\d)\.0"} (\d)', text)
    assert counts == [("0", "1"), ("1", "2"), ("2", "2"), ("3", "3"), ("5", "3")]


def test_task_types_from_outside_are_a_bounded_number_of_labels() -> None:
    types = TaskTypes(most=3)
    bodies = [b'{"task_type": "T%d"}' % number for number in range(5)]
    assert [types.label(body) for body in bodies] == ["T0", "T1", "T2", "(others)", "(others)"]
    assert [types.label(body) for body in (bodies[1], b"{}", b"\xff")] == ["T1", "UNKNOWN", "UNKNOWN"]
    assert TaskTypes().label(b'{"task_type": "%s"}' % (b"x" * 101)) == "(others)"


async def test_an_alert_arrives_in_a_real_alertmanager(
    make_world: MakesWorld, alertmanager_server: StartsMonitor[Alertmanager]
) -> None:
    """Of the tickets on the DLQ topic, and of one that is too large for it."""
    world = make_world(most=100_000)
    alertmanager = alertmanager_server("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    urls = (alertmanager.url.replace("http", "alertmanager+http", 1),)
    world.settings = replace(world.settings, alerts=replace(world.settings.alerts, urls=urls))
    world.send(*range(3))
    world.send(3, task_type="REPORT", payload="x" * 300_000)
    async with world.worker(failing):
        await world.main.until_committed(4)
    async with httpx.AsyncClient(base_url=f"{alertmanager.url}/api/v2") as client, world.consumer():
        found: list[dict[str, Any]] = []

        async def has_arrived() -> bool:
            asked = (await client.get("/alerts", params={"filter": 'alertname="TicketInDLQ"'})).json()
            found[:] = asked
            return len(found) == 2

        await until(has_arrived, what="both alerts are in Alertmanager")
    alert, of_stub = sorted(found, key=lambda one: str(one["labels"]["task_type"]))
    for one, kind in ((alert, "BUILD"), (of_stub, "REPORT")):
        labels = one["labels"]
        assert (labels["severity"], labels["task_type"], labels["error_type"]) == ("critical", kind, "TimeoutError")
    assert of_stub["annotations"]["ticket_id"] == world.id(3)
    assert alert["annotations"]["summary"] == "tickets of type BUILD are dead: TimeoutError"
    assert alert["annotations"]["ticket_id"] in {world.id(number) for number in range(3)}


async def test_an_alert_ends_when_its_tickets_are_done_and_has_the_same_labels_until_then(
    make_world: MakesWorld, alertmanager_server: StartsMonitor[Alertmanager]
) -> None:
    world = make_world()
    alertmanager = alertmanager_server("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    urls = (alertmanager.url.replace("http", "alertmanager+http", 1),)
    world.settings = replace(world.settings, alerts=replace(world.settings.alerts, urls=urls))
    world.send(1)
    world.send(2, task_type="REPORT")
    async with (
        httpx.AsyncClient(base_url=f"{alertmanager.url}/api/v2") as client,
        world.worker(failing) as worker,
        world.consumer(),
    ):

        async def active() -> list[str]:
            asked = (await client.get("/alerts", params={"filter": 'alertname="TicketInDLQ"'})).json()
            return sorted(alert["labels"]["task_type"] for alert in asked)

        async def is_active(*kinds: str) -> bool:
            return await active() == list(kinds)

        await until(lambda: is_active("BUILD", "REPORT"), what="both are told")
        world.dead.produce((b"k", world.ticket(3, dlq_metadata={"error_type": "TimeoutError", "original_error": "?"})))
        await world.until_dead(3)
        letters = (await worker.app.store.letters.search(Query())).letters
        of_build = [letter.id for letter in letters if b"BUILD" in letter.message.body]
        await worker.app.store.letters.move(of_build[:1], expect=OPEN, to=State.ARCHIVED, now=worker.app.clock.now())
        assert await is_active("BUILD", "REPORT")
        await worker.app.store.letters.move(of_build, expect=OPEN, to=State.ARCHIVED, now=worker.app.clock.now())
        await until(lambda: is_active("REPORT"), what="the alert of what is done is resolved")
