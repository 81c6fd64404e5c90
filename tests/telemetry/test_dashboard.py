"""The dashboard: every query of it, on a real Prometheus that scrapes real processes with something to do."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.measured import Measured
from redrive.forensics.query import Query
from redrive.forensics.stats import stats_of
from redrive.service import Service
from redrive.systems.discover import systems
from redrive.systems.email.metrics import EmailMetrics
from redrive.systems.email.snapshot import Memory, Snapshot, Turn
from redrive.systems.pipeline.metrics import measured as pipeline_measured
from redrive.systems.tickets.metrics import TicketMetrics
from redrive.systems.workflow import DeadLetterQueue
from redrive.systems.workflow.metrics import metrics_of
from redrive.telemetry.events import Events
from redrive.telemetry.metrics import Metrics
from redrive.testing.waiting import until
from tests.actors import acting
from tests.admin.process import Process, redrive
from tests.cli.conftest import place, shell
from tests.cli.world import Shell
from tests.servers.fixtures import StartsMonitor
from tests.servers.prometheus import Prometheus
from tests.servers.rabbitmq import RabbitMQ
from tests.systems.pipeline.world import Pipe, node

__all__ = ["place", "shell"]
SHOP = """
from datetime import timedelta

from redrive import Permanent, Policy, Redrive, Transient, exponential
from redrive.config.settings import Settings, Upkeep

url = "sqlite:///redrive.db"
upkeep = Upkeep(interval=timedelta(milliseconds=100))
app = Redrive(settings=Settings(store=url, transports={"default": url}, upkeep=upkeep))
attempts = {}


@app.handler("orders", policy=Policy(attempts=3, backoff=exponential("50ms")))
async def charge(number: int) -> None:
    attempts[number] = attempts.get(number, 0) + 1
    if number % 5 == 0 and attempts[number] == 1:
        raise Permanent("declined")
    if number % 3 == 0 and attempts[number] == 1:
        raise Transient("busy")
"""
CONFIG = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - {job_name: redrive, static_configs: [{targets: [TARGETS]}]}
"""
NOT_HERE = {  # of what this shop has none, in a row of the dashboard: its metric is there all the same
    "Circuit breakers that are open",
    "Refused by the store",
    "How full queues with a bound are",
    "Alerts of Redrive's own",
    "Did not answer",
    "Letters sent back by automatic retries",
    "Incidents",
}
NAME = re.compile(r"\b(?:redrive|worker_agent|dlq|retry|tenant|redis|pipestream|rabbitmq)_[a-z_]+\b(?!=)")


class Seen:
    """Two processes on one store, and the Prometheus that scrapes them."""

    def __init__(self, worker: str, server: str, prometheus: httpx.AsyncClient) -> None:
        self.worker, self.server, self._prometheus = worker, server, prometheus

    async def ask(self, expr: str) -> list[dict[str, Any]]:
        """What Prometheus finds for a query of the dashboard; one that it cannot parse fails the test."""
        plain = expr.replace("$source", ".*").replace("$__rate_interval", "1h")
        answer = (await self._prometheus.get("/api/v1/query", params={"query": plain})).json()
        assert answer["status"] == "success", (expr, answer)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    async def names(self) -> set[str]:
        async with httpx.AsyncClient() as client:
            texts = [(await client.get(f"{url}/metrics")).text for url in (self.worker, self.server)]
        return set().union(*map(names_in, texts))

    async def has_evaluated_every_rule(self) -> bool:
        groups = (await self._prometheus.get("/api/v1/rules")).json()["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert rules
        assert [rule["lastError"] for rule in rules if "lastError" in rule] == []
        return all(rule["health"] == "ok" for rule in rules)

    async def until(self, expr: str) -> list[dict[str, Any]]:
        """What it finds, when it finds something: after a scrape that took too long there is nothing until the next."""
        result: list[dict[str, Any]] = []

        async def found() -> bool:
            result[:] = await self.ask(expr)
            return bool(result)

        await until(found, what=expr)
        return result


def names_in(text: str) -> set[str]:
    """The names of every metric of a scrape, also of those that have no value yet."""
    kinds = re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE)
    return {f"{name}{end}" for name, kind in kinds for end in (("", "_bucket") if kind == "histogram" else ("",))}


def queries_of(text: str) -> Iterator[tuple[str, str]]:
    """Title and expression of each query of a dashboard."""
    for panel in json.loads(text)["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@pytest.fixture
async def seen(shell: Shell, prometheus_server: StartsMonitor[Prometheus]) -> AsyncIterator[Seen]:
    shell.place.joinpath("shop.py").write_text(SHOP)
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(redrive(shell.place, "run", "shop:app", "--metrics-port", "0"))
        server = await stack.enter_async_context(redrive(shell.place, "up", "--port", "0", "--no-upkeep"))
        urls = [await _url(worker, r"metrics  (http://\S+)/metrics"), await _url(server, r"console  (http://[^/]+)/")]
        targets = ", ".join(f'"{url.removeprefix("http://")}"' for url in urls)
        rules = {"rules.yml": shell("alert-rules").stdout}
        prometheus = prometheus_server(CONFIG.replace("TARGETS", targets), rules)
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=prometheus.url))
        yield Seen(urls[0], urls[1], client)


async def _url(process: Process, pattern: str) -> str:
    return (await process.line(pattern))[1]


@pytest.fixture
async def app(shell: Shell) -> AsyncIterator[Redrive]:
    """The same database, from here."""
    url = f"sqlite:///{shell.place}/redrive.db"
    async with Redrive(settings=Settings(store=url, transports={"default": url})) as made:
        yield made


async def send(app: Redrive, numbers: range) -> None:
    await app.send_messages([app.message("orders", number) for number in numbers])


async def test_every_query_of_the_core_runs_and_finds_something(seen: Seen, app: Redrive, shell: Shell) -> None:
    await seen.until('redrive_messages_total{outcome="done"}')  # 0 from the start, so that rates see the first
    await send(app, range(40))
    await seen.until('sum(max by (source, state) (redrive_letters{state="pending"})) == 8')
    await Service(app).replay(Query(), every=True, actor=acting("ann"))  # which the upkeep of the worker runs
    await seen.until("sum(redrive_letters_resolved_total) == 8")
    await send(app, range(100, 140))
    await app.send("orders", 7, delay="1h")
    await seen.until('sum(max by (source, state) (redrive_letters{state="pending"})) == 8')
    await seen.until('sum(redrive_messages_total{outcome="retried"}) >= 10')
    await seen.until("sum(increase(redrive_replays_total[1h])) >= 0")
    await seen.until('max(redrive_queue{kind="delayed"}) >= 1')
    names = await seen.names()
    for title, expr in queries_of(shell("dashboard").stdout):
        assert set(NAME.findall(expr)) <= names, f"{title}: no process has such a metric"
        if title not in NOT_HERE:
            await seen.until(expr)
    rules = "\n".join(re.findall(r"^ +(?!#|action|summary)(.*)$", shell("alert-rules").stdout, re.MULTILINE))
    assert set(NAME.findall(rules)) <= names, "a rule asks for a metric that no process has"


async def test_a_prometheus_can_work_with_every_rule_and_none_fires_in_a_shop_that_is_well(seen: Seen) -> None:
    await seen.until('redrive_upkeep_last_run_timestamp_seconds{task="rescue"} > 0')
    await seen.until("redrive_worker == 1")
    await until(seen.has_evaluated_every_rule, what="each rule has a result")
    assert await seen.ask('ALERTS{alertstate="firing"}') == []
    up = await seen.until("min by (backend) (redrive_backend_up) == 1")
    assert {point["metric"]["backend"] for point in up} == {"store", "transports.default"}


async def _of_email() -> str:
    own, metrics = EmailMetrics("email:send"), Metrics(Events())
    turn = Turn("acme", 1, 1, 1, 1)
    own.snapshot = Snapshot({"421": 1}, {"acme": 1}, (1.0,), (turn,), Memory(1, 2, 0, 0))
    metrics.registry.register(own)
    return metrics.render(None).decode()


async def _of_tickets() -> str:
    metrics = Metrics(Events())
    TicketMetrics(metrics)
    return metrics.render(None).decode()


async def _of_pipeline() -> str:
    return pipeline_measured(Pipe("127.0.0.1:9", [node()], {"flex": ["127.0.0.1:9"]}).engine).render(None).decode()


async def _of_workflow() -> str:
    async with DeadLetterQueue() as queue:
        return metrics_of(queue).render(Measured(stats_of([], {}, queue.clock.now()), {})).decode()


async def _of_files() -> str:
    return Metrics(Events()).render(None).decode() + "# TYPE rabbitmq_ gauge\n"  # its own are RabbitMQ's: see below


SCRAPES = {
    "email": _of_email,
    "files": _of_files,
    "pipeline": _of_pipeline,
    "tickets": _of_tickets,
    "workflow": _of_workflow,
}


@pytest.mark.parametrize("name", sorted(SCRAPES))
async def test_every_query_of_a_system_can_be_asked_and_names_a_metric_that_it_has(
    name: str, shell: Shell, prometheus_server: StartsMonitor[Prometheus]
) -> None:
    queries = list(queries_of(shell("dashboard", "--system", name).stdout))
    assert len(queries) >= 3
    names = names_in(await SCRAPES[name]())
    prometheus = prometheus_server("global: {scrape_interval: 1s}\n")
    async with httpx.AsyncClient(base_url=prometheus.url) as client:
        seen = Seen("", "", client)
        for title, expr in queries:
            await seen.ask(expr)
            assert set(NAME.findall(expr)) <= names, title


def test_no_system_is_left_out() -> None:
    assert {system.name for system in systems().values() if system.panels} >= SCRAPES.keys()


def test_the_plug_in_of_rabbitmq_has_what_the_files_are_shown_by(rabbitmq_server: RabbitMQ) -> None:
    text = httpx.get(f"{rabbitmq_server.addresses['metrics']}/per-object").text
    assert "rabbitmq_queue_messages" in names_in(text)


def test_grafana_finds_every_panel_in_its_place_and_asks_the_chosen_prometheus(shell: Shell) -> None:
    words = [word for name in ("core", *systems()) for word in ("--system", name)]
    shell("dashboard", *words, "--output", "redrive.json")
    made = json.loads(shell.place.joinpath("redrive.json").read_text())
    panels, taken = made["panels"], set[tuple[int, int]]()
    assert len({panel["id"] for panel in panels}) == len(panels)
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows[:7] == ["Overview", "Sources", "Retries", "Letters", "Replays", "Workers", "Backends"]
    assert {"Tickets", "E-mail", "Files", "Pipeline", "Workflows"} <= {*rows}
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies on another"
        assert place["x"] + place["w"] <= 24
        taken |= cells
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
    assert [variable["name"] for variable in made["templating"]["list"]] == ["datasource", "source"]
    chosen = {"$datasource", "$source", "$__rate_interval"}
    assert (
        set(re.findall(r"\$\w+", json.dumps([target for panel in panels for target in panel.get("targets", ())])))
        <= chosen
    )
