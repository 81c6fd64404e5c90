"""The graph as a page draws it: which nodes fail, what waits at each, and only what somebody may know of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from redrive import Redrive
from redrive.access.actors import EVERYTHING, Role, Scope
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Settings
from redrive.model import State
from redrive.service import Service
from redrive.systems.pipeline.engine import with_pipeline
from redrive.systems.pipeline.overview import LATELY
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.systems.use import routers_of
from redrive.testing.builders import make_letter, make_message
from tests.actors import acting
from tests.admin.asking import asking, running

PARSE, ENRICH, INDEX = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))
GRAPH = f"""
cluster: docs
modules: {{flex: ["127.0.0.1:1"]}}
nodes:
  - {{id: {PARSE}, module: flex, name: parse, next: [{ENRICH}, {INDEX}]}}
  - {{id: {ENRICH}, module: flex, name: enrich, next: [{INDEX}]}}
  - {{id: {INDEX}, module: flex, name: index}}
"""


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[Redrive]:
    (tmp_path / "graph.yml").write_text(GRAPH)
    url = f"sqlite:///{tmp_path / 'redrive.db'}"
    own = PipelineSettings(transport=url, graph=str(tmp_path / "graph.yml"))
    async with Redrive(
        settings=with_pipeline(Settings(store=url, transports={"default": url}, sections=(own,)))
    ) as app:
        now = app.clock.now()
        died = [(PARSE, now, State.EXHAUSTED)] * 2 + [(ENRICH, now - 2 * LATELY, State.PENDING)]
        for number, (node, at, state) in enumerate(died):
            message = make_message(id=f"s{number}", source=f"docs.{node}")
            await app.store.letters.record([make_letter(message, at=at, state=state)])
        yield app


async def _graph(app: Redrive, scope: Scope = EVERYTHING) -> Any:
    tokens = Tokens(app.store.documents, app.clock)
    _, text = await tokens.create("viewer", Role.VIEWER, scope=scope)
    api = create_api(Service(app), tokens=tokens, routers=routers_of(app.settings))
    async with running(api), asking(api, text) as viewer:
        names = [system["name"] for system in (await viewer.get("/api/systems")).json()]
        answer = await viewer.get("/api/pipeline/graph")
    assert answer.status_code == 200, answer.text
    assert "pipeline" in names
    return answer.json()


async def test_a_node_at_which_streams_died_lately_fails(app: Redrive) -> None:
    found = await _graph(app)
    assert found["unanswered"] == []
    assert [(node["name"], node["state"], node["dead"], node["died_lately"]) for node in found["nodes"]] == [
        ("parse", "failing", 2, 2),
        ("enrich", "dead", 1, 0),
        ("index", "idle", 0, 0),
    ]
    assert [node["next"] for node in found["nodes"]] == [[ENRICH, INDEX], [INDEX], []]


async def test_a_node_that_is_paused_says_so(app: Redrive) -> None:
    await Service(app).pause(f"docs.{INDEX}", actor=acting("ann"), transport="pipeline", force=True)
    assert (await _graph(app))["nodes"][2]["state"] == "paused"


async def test_somebody_sees_the_nodes_of_their_scope_and_no_way_to_others(app: Redrive) -> None:
    found = await _graph(app, Scope(sources=(f"docs.{PARSE}", f"docs.{ENRICH}")))
    assert [(node["name"], node["next"]) for node in found["nodes"]] == [("parse", [ENRICH]), ("enrich", [])]
