"""`redrive alerts`, `redrive incidents`, `redrive config` and `redrive doctor`, and the routes of incidents."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from redrive.access.actors import Role
from redrive.alerts.incidents import Timing
from redrive.service import Service
from tests.admin.conftest import Client, Shop, api, client, shop, tokens
from tests.alerts.conftest import SECRET, an_alert
from tests.cli.conftest import place, shell
from tests.cli.world import Shell

__all__ = ["api", "client", "place", "shell", "shop", "tokens"]  # fixtures
TIMING = Timing(timedelta(hours=4), timedelta(minutes=2))


class Pager:
    """PagerDuty, as far as it answers, in a thread: the commands run loops of their own."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.status = 202
        pager = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                pager.events.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(pager.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"pagerduty+http://{SECRET}@127.0.0.1:{self.server.server_port}"

    @property
    def actions(self) -> list[str]:
        return [one["event_action"] for one in self.events]


@pytest.fixture
def pager() -> Iterator[Pager]:
    made = Pager()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def paged(shell: Shell, pager: Pager, monkeypatch: pytest.MonkeyPatch) -> Pager:
    monkeypatch.setenv("REDRIVE_ALERTS_URLS", pager.url)
    return pager


def report(shell: Shell, *keys: str) -> list[str]:
    async def work(service: Service) -> list[str]:
        alerts = [an_alert(key, at=datetime.now(UTC)) for key in keys]
        return [(await service.incidents.report(alert, TIMING)).id for alert in alerts]

    shell.keep([])
    return shell.ask(work)


def test_a_test_alert_says_of_each_notifier_whether_it_arrived(
    shell: Shell, pager: Pager, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"webhook+http://127.0.0.1:1/{SECRET}"
    monkeypatch.setenv("REDRIVE_ALERTS_URLS", f"{pager.url},{other}")
    said = shell.json("alerts", "test", code=1)["notifiers"]
    assert [(one["arrived"], bool(one["why"])) for one in said] == [(True, False), (False, True)]
    assert pager.actions == ["trigger", "resolve"]
    printed = shell("alerts", "test", code=1)
    assert "pagerduty+http://[redacted]" in printed.stdout
    assert SECRET not in printed.output
    monkeypatch.setenv("REDRIVE_ALERTS_URLS", pager.url)
    assert shell.json("alerts", "test")["notifiers"][0]["arrived"]


def test_a_test_without_a_notifier_says_what_to_set(shell: Shell) -> None:
    assert "alerts.urls" in shell("alerts", "test", code=2).stderr


def test_rules_are_listed_with_their_thresholds(shell: Shell, place: Path) -> None:
    Path("redrive.toml").write_text("[alerts]\nexhausted = 7\nbreaker = false\nseverity = 'error'\n")
    rules = {one["name"]: one for one in shell.json("alerts", "rules")["rules"]}
    assert rules["LettersExhausted"]["when"] == "7 or more letters of one group are exhausted"
    assert {name for name, one in rules.items() if one["on"]} == {
        "LettersExhausted",
        "GroupGrowing",
        "BackendDown",
        "SourceStorm",
        "ReplayPaused",
        "GroupRegressed",
    }
    assert "alerts.backend_down" in shell("alerts", "rules").stdout


def test_urls_of_notifiers_are_never_shown(shell: Shell, paged: Pager) -> None:
    for words in (("config",), ("config", "--json"), ("doctor",), ("doctor", "--json")):
        printed = shell(*words, code=None).output
        assert SECRET not in printed
        assert "pagerduty+http://[redacted]" in printed
    Path("redrive.toml").write_text(f'[alerts]\nurls = "slack://{SECRET}"\n')
    assert SECRET not in shell("config", code=None).output


def test_a_setting_of_the_wrong_kind_does_not_show_a_secret(shell: Shell) -> None:
    Path("redrive.toml").write_text(f'[alerts]\nurls = "slack://{SECRET}"\n')
    said = shell("config", code=2).stderr
    assert "alerts.urls = [redacted]" in said
    assert "a list of texts" in said
    assert SECRET not in said


def test_doctor_says_whether_a_notifier_can_be_reached(
    shell: Shell, paged: Pager, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.keep([])
    found = [one for one in shell.json("doctor")["findings"] if one["about"] == "alerts.urls"]
    assert [one["level"] for one in found] == ["fine"]
    assert paged.events == []
    monkeypatch.setenv("REDRIVE_ALERTS_URLS", "alertmanager+http://127.0.0.1:1,nosuch://x")
    found = [one for one in shell.json("doctor", code=2)["findings"] if one["about"] == "alerts.urls"]
    assert [one["level"] for one in found] == ["failure", "failure"]
    assert "alertmanager+http://127.0.0.1:1 does not answer" in found[0]["text"]


def test_incidents_are_listed_shown_acknowledged_annotated_and_resolved(shell: Shell, paged: Pager) -> None:
    first, second = report(shell, "a", "b")
    assert {one["id"] for one in shell.json("incidents")["incidents"]} == {first, second}
    assert "it burns" in shell("incidents").stdout
    done = shell.json("incidents", "ack", first[:8])
    assert done["state"] == "acknowledged"
    assert done["acknowledged_by"].endswith("(cli)")
    shell("incidents", "note", first, "the provider says 15:00")
    assert "the provider says 15:00" in shell("incidents", "show", first).stdout
    shell("incidents", "resolve", first)
    listed = shell.json("incidents", "list", "--state", "open", "--state", "acknowledged")["incidents"]
    assert [one["id"] for one in listed] == [second]
    assert [one["event_action"] for one in paged.events if one["dedup_key"] == "a"] == ["acknowledge", "resolve"]
    actions = [one["action"] for one in shell.ask(lambda service: service.audit())]
    assert actions == ["resolve", "note", "acknowledge"]


def test_what_is_resolved_cannot_be_acknowledged(shell: Shell) -> None:
    [id] = report(shell, "a")
    shell("incidents", "resolve", id)
    assert "resolved already" in shell("incidents", "ack", id, code=2).stderr


def test_an_unknown_incident_is_nothing_found(shell: Shell) -> None:
    report(shell, "a")
    assert "redrive incidents" in shell("incidents", "show", "zzzz", code=1).stderr


def test_no_incidents_are_no_news(shell: Shell) -> None:
    shell.keep([])
    assert shell.json("incidents") == {"incidents": []}
    assert "no incidents" in shell("incidents").stderr


# -- HTTP --------------------------------------------------------------------------------------------------------------


async def test_the_routes_of_incidents(client: Client, shop: Shop) -> None:
    service = Service(shop.app)
    one = await service.incidents.report(an_alert("a", at=datetime.now(UTC)), TIMING)
    viewer, operator = await client(Role.VIEWER), await client(Role.OPERATOR)
    assert [found["id"] for found in (await viewer.get("/api/incidents")).json()] == [one.id]
    assert (await viewer.get(f"/api/incidents/{one.id}")).json()["alert"]["summary"] == "it burns"
    acked = (await operator.post(f"/api/incidents/{one.id}/acknowledge")).json()
    assert (acked["state"], acked["acknowledged_by"].split()[0]) == ("acknowledged", "operator")
    noted = await operator.post(f"/api/incidents/{one.id}/notes", json={"text": "mending"})
    assert noted.json()["notes"][0]["text"] == "mending"
    assert (await operator.post(f"/api/incidents/{one.id}/resolve")).json()["state"] == "resolved"
    assert (await viewer.get("/api/incidents", params={"states": "open"})).json() == []
    assert [entry["action"] for entry in await service.audit()] == ["resolve", "note", "acknowledge"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/incidents/nothing", None, 404),
        ("POST", "/api/incidents/nothing/resolve", None, 404),
        ("GET", "/api/incidents?states=burning", None, 422),
        ("GET", "/api/incidents?stats=open", None, 422),
        ("POST", "/api/incidents/nothing/notes", {"text": ""}, 422),
        ("POST", "/api/incidents/nothing/notes", {"txt": "x"}, 422),
    ],
)
async def test_what_makes_no_sense_is_refused(client: Client, method: str, path: str, body: Any, status: int) -> None:
    answer = await (await client(Role.OPERATOR)).request(method, path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]
