"""Sources: how they stand, what is left alone, the pipeline's graph, and dead-letter queues of RabbitMQ."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from redrive import Redrive
from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.config.settings import Settings
from redrive.flow.breaker import Position
from redrive.model import State
from redrive.service import Service
from redrive.systems.files.settings import FilesSettings
from redrive.systems.pipeline.engine import with_pipeline
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.telemetry.events import BreakerMoved
from redrive.testing.builders import make_letter, make_message
from redrive.worker import Worker
from tests.actors import acting
from tests.admin.conftest import Shop
from tests.console.conftest import HOSTILE, SOON, at
from tests.console.test_accessible import wrong
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis
from tests.systems.files.conftest import Broker, broker  # noqa: F401

pytestmark = pytest.mark.servers

PARSE, INDEX = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
GRAPH = f"""
cluster: docs
nodes:
  - {{id: {PARSE}, module: flex, name: parse, next: [{INDEX}]}}
  - {{id: {INDEX}, module: flex, name: index, next: [{PARSE}]}}
"""


async def test_a_source_tells_its_workers_and_is_paused_and_resumed(page: Page, server: Server, shop: Shop) -> None:
    worker = Worker(shop.app, upkeep=False)
    work = asyncio.create_task(worker.run())
    row = page.locator("#sources tr", has_text="orders")
    await page.goto(at(server, "/sources"))
    await expect(row.locator("[data-label='workers']")).to_have_text("1")
    await expect(row.locator("[data-label='finish a second']")).to_have_text(re.compile(r"^[\d.,]+$"))
    await row.get_by_role("button", name="Pause orders").click()
    await page.get_by_role("textbox", name="Why").fill("the gateway is away")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(row).to_contain_text("the gateway is away")
    await row.get_by_role("link", name="orders").click()
    await expect(page.locator("h1")).to_contain_text("paused")
    await page.get_by_role("button", name="Resume orders").click()
    await expect(page.locator("h1")).to_contain_text("running")
    worker.stop()
    await work


async def test_a_breaker_that_is_open_is_named_until_it_closes(page: Page, server: Server, shop: Shop) -> None:
    shop.app.events.emit(BreakerMoved(target="default/orders", state=Position.OPEN))
    await page.goto(at(server, "/sources"))
    await expect(page.locator("#breakers li")).to_contain_text("default/orders")
    await expect(page.locator("#breakers .pill")).to_have_text("open")
    shop.app.events.emit(BreakerMoved(target="default/orders", state=Position.CLOSED))
    await page.reload()
    await expect(page.locator("#breakers")).to_contain_text("All are closed")


async def test_the_graph_of_a_pipeline_is_drawn_and_a_failing_node_is_red(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "graph.yml").write_text(GRAPH)
    url = f"sqlite:///{tmp_path / 'redrive.db'}"
    own = PipelineSettings(transport=url, graph=str(tmp_path / "graph.yml"))
    settings = with_pipeline(Settings(store=url, transports={"default": url}, sections=(own,)))
    async with Redrive(settings=settings) as app, _opened(browser, app, "/sources") as page:
        await expect(page.locator("#graph svg .graph-node[data-state='idle']")).to_have_count(2)
        message = make_message(source=f"docs.{PARSE}")
        await app.store.letters.record([make_letter(message, at=app.clock.now(), state=State.EXHAUSTED)])
        failing = page.locator("#graph svg .graph-node[data-state='failing']")
        await expect(failing).to_contain_text("1 dead stream")
        fills = "node => getComputedStyle(node).fill"
        well = page.locator("#graph svg .graph-node[data-state='idle'] rect")
        assert await failing.locator("rect").evaluate(fills) != await well.evaluate(fills)
        await expect(page.locator("#graph svg path.graph-way")).to_have_count(2)
        await page.locator("#graph summary").click()
        await expect(page.locator("#graph table tr", has_text="parse").locator(".pill")).to_have_text("failing")
        await failing.click()
        await expect(page.locator("h1")).to_contain_text(f"docs.{PARSE}")


async def test_a_dead_letter_queue_of_rabbitmq_is_looked_into_and_sent_back(
    browser: Browser,
    broker: Broker,  # noqa: F811
    tmp_path: Path,
) -> None:
    for number in range(3):
        body = b'{"note": "%s", "password": "hunter2"}' % HOSTILE.replace('"', "'").encode()
        await broker.publish("parking", body, exchange="dlq.q.audit", message_id=f"m-{number}", headers={"x": HOSTILE})
    url = f"sqlite:///{tmp_path / 'redrive.db'}"
    own = FilesSettings(
        url=broker.url.partition("?")[0], management=broker.server.management_url.replace("://", "://guest:guest@")
    )
    settings = Settings(store=url, transports={"default": url}, sections=(own,))
    async with Redrive(settings=settings) as app, _opened(browser, app, "/sources") as page:
        row = page.locator("#dead-queues tr", has_text="q.audit.dlq")
        await expect(row.locator("[data-label='messages']")).to_have_text("3")
        await row.get_by_role("link").click()
        await expect(page.locator("#messages li.dead-message")).to_have_count(3)
        await expect(page.locator("#messages")).to_contain_text("m-0")
        await expect(page.locator("#messages")).not_to_contain_text("hunter2")
        await expect(page.locator("#messages img, #messages script")).to_have_count(0)
        assert await broker.count("q.audit.dlq") == 3, "looking changes nothing"
        assert await wrong(page) == []
        await expect(page.get_by_role("button", name="Re-drive…")).to_be_visible()  # the plan comes by itself
        await page.keyboard.press("r")
        await page.get_by_label("How many at most").fill("2")
        await broker.publish("parking", b"{}", exchange="dlq.q.audit", message_id="m-3")
        await expect(page.locator("#main h1 + p, #main .about").first).to_contain_text("4 messages", timeout=SOON)
        await expect(page.get_by_label("How many at most")).to_have_value("2")  # what is typed stays
        await page.get_by_role("button", name="Re-drive", exact=True).click()
        await expect(page.locator(".toast")).to_contain_text("2 of 4 went back to q.audit")
        await expect(page.locator("#messages li.dead-message")).to_have_count(2)
    assert (await broker.count("q.audit.dlq"), await broker.count("q.audit")) == (2, 2)


async def test_a_queue_that_nobody_can_list_is_not_said_to_be_empty(
    browser: Browser,
    broker: Broker,  # noqa: F811
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'redrive.db'}"
    settings = Settings(store=url, transports={"default": url, "rabbit": broker.url})
    async with Redrive(settings=settings) as app:
        app.declare("eu/orders <b>?#", transport="rabbit")
        await app.send("eu/orders <b>?#", {"id": 1})
        async with _opened(browser, app, "/sources") as page:
            await page.locator("#sources").get_by_role("link", name="rabbit/eu/orders <b>?#").click()
            await expect(page.locator("#queue")).to_contain_text("messages are not shown", timeout=SOON)
            await expect(page.locator("#queue .empty-title")).to_have_text(
                "What is in it cannot be listed", timeout=SOON
            )


async def test_every_tenant_that_waits_for_a_turn_is_told_of(
    browser: Browser, start_server: StartsServer, tmp_path: Path
) -> None:
    url, redis = f"sqlite:///{tmp_path / 'redrive.db'}", start_server(Redis)
    settings = Settings(store=url, transports={"default": f"redis://127.0.0.1:{redis.port}/0?checks=off"})
    async with Redrive(settings=settings) as app:

        @app.handler("mails", fair=True)
        async def send(mail: dict[str, Any]) -> None:
            """Never called: its source is paused."""

        await Service(app).pause("mails", actor=acting("ann"), why="so that all of them wait")
        for number in range(14):
            await app.send("mails", {"id": number}, tenant=f"tenant-{number:02}")
        await app.send("mails", {"id": 15})
        async with _opened(browser, app, "/sources") as page:
            turns = page.locator("#turns")
            await expect(turns).to_contain_text("no turn yet", timeout=SOON)
            await expect(turns).to_contain_text("without a tenant")
            await turns.get_by_text("3 more").click()
            for number in range(14):
                await expect(turns.locator("li", has_text=f"tenant-{number:02}")).to_contain_text("1 wait")
            await expect(turns).not_to_contain_text("null")


@asynccontextmanager
async def _opened(browser: Browser, app: Redrive, path: str) -> AsyncIterator[Page]:
    """A page of an admin on a server of that app; what the browser complains of fails the test."""
    server, listening = Server(app, "127.0.0.1", 0, upkeep=False), asyncio.Event()
    _, token = await Tokens(app.store.documents, app.clock).create("admin", Role.ADMIN)
    running = asyncio.create_task(server.run(lambda _: listening.set()))
    await listening.wait()
    complaints: list[str] = []
    page = await browser.new_page()
    page.set_default_timeout(SOON)
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        await page.goto(at(server, f"{path}#token={token}"))
        yield page
    finally:
        await page.close()
        server.stop()
        async with asyncio.timeout(20):
            await running
    assert complaints == []
