"""What the tickets tell: metrics under the contract's names, its three rules, and an alert in a real Alertmanager."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
from msgspec.structs import replace

import redrive.systems.tickets
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
    assert 'worker_agent_ticket_retry_count_bucket{le="1.0"} 3.0' in text
    assert 'worker_agent_ticket_retry_count_bucket{le="3.0"} 7.0' in text
    assert "# TYPE worker_agent_dlq_publish_errors_total counter" in text


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
