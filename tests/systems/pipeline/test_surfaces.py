"""The pipeline as people and programs meet it: commands, routes, metrics, rules."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from redrive import Redrive
from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Settings
from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from redrive.stores.sqlite import SqliteStore
from redrive.systems.pipeline import Document, Step, routes
from redrive.systems.pipeline.engine import with_pipeline
from redrive.systems.pipeline.metrics import measured
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.systems.use import routers_of
from redrive.testing.waiting import until
from tests.actors import acting
from tests.admin.asking import asking, running
from tests.servers.consul import Consul
from tests.servers.ports import claim_port
from tests.systems.pipeline.world import ModuleProcess, Pipe, command, config, environment, node, read_topic, written

Starts = Callable[..., ModuleProcess]
UNREACHED = ("MODULE_UNAVAILABLE", "RETRIES_EXHAUSTED")
MODULE = """
from redrive.systems.pipeline import Document, Module

module = Module("shout")


@module.process
def shout(document: Document) -> Document:
    return Document(content=document.content.upper())
"""


async def test_a_pipeline_by_command(kafka: str, consul_server: Consul, tmp_path: Path) -> None:
    """A module from its file, registered in Consul; an engine; a stream, and its trace; a replay of what died."""
    name = f"shout-{uuid4().hex[:8]}"
    shout = node(name, name="shout")
    pipe = Pipe(kafka, [shout], consul=consul_server.url)
    env = environment(pipe, tmp_path, REDRIVE_PIPELINE_CONSUL=consul_server.url, PYTHONPATH=str(tmp_path))
    graph = env["REDRIVE_PIPELINE_GRAPH"]
    (tmp_path / "shouting.py").write_text(MODULE.replace('"shout"', f'"{name}"'))
    (tmp_path / "doc.txt").write_text("hello")
    made = await command(env, "pipeline", "topics", graph)
    assert (made.exit_code, made.stdout.split()) == (0, pipe.graph.topics)
    words, whole = (sys.executable, "-m", "redrive", "pipeline"), os.environ | env
    engine = await asyncio.create_subprocess_exec(
        *words, "engine", graph, "--metrics-port", "0", env=whole, stderr=subprocess.PIPE
    )
    module = None
    try:
        sent = await command(env, "pipeline", "send", graph, str(tmp_path / "doc.txt"))
        assert sent.exit_code == 0, sent.stderr
        await asyncio.to_thread(read_topic, kafka, pipe.graph.dlq_topic(shout), 1)

        async def is_dead() -> bool:
            """On the topic first, then in the store."""
            dead = await command(env, "pipeline", "replay", "shout", "--dry-run", "--json")
            assert dead.exit_code == 0, dead.stderr
            return bool(json.loads(dead.stdout)["streams"] == 1)

        await until(is_dead, timeout=60, what="its letter is in the store")
        module = await asyncio.create_subprocess_exec(
            *words, "module", "shouting:module", env=whole, stdout=subprocess.PIPE
        )
        assert module.stdout is not None
        assert name in (await asyncio.wait_for(module.stdout.readline(), 120)).decode()
        unsure = await command(env, "pipeline", "replay", "shout")
        assert (unsure.exit_code, "--yes" in unsure.stderr) == (2, True), unsure.stderr
        chosen = ("--error-type", "MODULE_UNAVAILABLE", "--limit", "5")
        back = await command(env, "pipeline", "replay", shout.id, *chosen, "--yes", "--timeout", "30s")
        assert back.exit_code == 0, (back.stdout, back.stderr)
        traced = await command(env, "pipeline", "trace", sent.stdout.strip(), "--json")
        assert traced.exit_code == 0
        found = json.loads(traced.stdout)
        assert [(one["node"], one["outcome"], one["repeat"]) for one in found["steps"]] == [("shout", "OK", False)]
        places = [one["where"] for one in found["sightings"]]
        assert sorted(places) == ["DLQ of shout", "finished", "shout", "shout"]
        assert "MODULE_UNAVAILABLE" in next(one["error"] for one in found["sightings"] if "DLQ" in one["where"])
        assert (await command(env, "pipeline", "trace", "nobody")).exit_code == 1
        wrong = await command(env, "pipeline", "replay", "nobody")
        assert (wrong.exit_code, "no node 'nobody'" in wrong.stderr) == (2, True)
    finally:
        for process in filter(None, (engine, module)):
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        _, said = await asyncio.wait_for(engine.communicate(), 120)
        assert engine.returncode == 0, said
        assert b"attempts are counted in memory" in said, "nobody has to find out by a restart"
        if module is not None:
            assert await asyncio.wait_for(module.wait(), 120) == 0
        await pipe.engine.aclose()
    async with httpx.AsyncClient() as client:
        services = (await client.get(f"{consul_server.url}/v1/agent/services")).json()
    assert not [one for one in services if name in one], "it has left"


async def test_the_route(kafka: str, tmp_path: Path) -> None:
    """Roles, unknown nodes, a dry run, a replay; documents come back as they were."""
    at = node(name="at", dlq_config=config(1))
    store = SqliteStore(f"sqlite:///{tmp_path}/redrive.db")
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]}, store=store) as pipe:
        sent = {await pipe.send(content=f"document {number}".encode()) for number in range(3)}
        await pipe.letters(3)
    url = f"sqlite:///{tmp_path}/redrive.db"
    own = PipelineSettings(transport=f"kafka://{kafka}", graph=str(written(pipe, tmp_path)))
    settings = with_pipeline(Settings(store=url, transports={"default": url}, sections=(own,)))
    assert routers_of(settings) == [routes.router]
    path = f"/admin/dlq/{at.id}/replay"
    async with Redrive(settings=settings) as app:
        tokens = Tokens(app.store.documents, app.clock)
        api = create_api(Service(app), tokens=tokens, routers=routers_of(settings))

        async def ask(role: Role | None, path: str, body: Any = None) -> httpx.Response:
            text = (await tokens.create(f"as {role}", role))[1] if role else None
            async with asking(api, text) as client:
                return await (client.post(path) if body is None else client.post(path, json=body))

        async with running(api):
            assert (await ask(None, path, {})).status_code == 401
            assert (await ask(Role.VIEWER, path, {})).status_code == 403
            unknown = await ask(Role.OPERATOR, f"/admin/dlq/{node().id}/replay", {})
            assert (unknown.status_code, "the graph has no node" in unknown.json()["error"]) == (404, True)
            for bad in ({"limit": 0}, {"limti": 1}, {"since": "2026-01-01T00:00:00"}):
                assert (await ask(Role.OPERATOR, path, bad)).status_code == 422
            assert (await ask(Role.OPERATOR, path, {"error_type": "TIMEUOT"})).status_code == 400
            none = await ask(Role.ADMIN, path, {"error_type": "TIMEOUT", "dry_run": True})
            assert (none.status_code, none.json()["total"]) == (202, 0)
            one = (await ask(Role.OPERATOR, path, {"limit": 1})).json()
            assert (one["total"], one["node_id"]) == (1, at.id)
            rest = await ask(Role.OPERATOR, path)
            assert rest.status_code == 202, rest.text
            assert rest.json()["total"] in (2, 3), "all of that node; the first may be on its way, or not yet"

            async def gone() -> bool:
                page = await app.store.letters.search(Query(states=(State.REPLAYING,)))
                return len(page.letters) == 3 and all(letter.owner is None for letter in page.letters)

            await until(gone, what="all three are sent, and not only claimed")
            assert (await ask(Role.OPERATOR, path, {"dry_run": True})).json()["total"] == 0
    raws = await pipe.records(pipe.graph.topic(at), 6)
    assert len(raws) == 6
    values = sorted(raw.value() for raw in raws)
    assert values[::2] == values[1::2], "each came back byte for byte"
    assert len(sent) == 3


async def test_a_replayed_stream_resolves_its_letter(kafka: str, start_module: Starts) -> None:
    port = claim_port()
    at = node(name="at", dlq_config=config(1))
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{port}"]}) as pipe:
        id = await pipe.send("upper", content=b"kept")
        [letter] = await pipe.letters(1)
        await start_module(port=port).started()
        await until(lambda: not pipe.engine.callers["flex"].instances[f"127.0.0.1:{port}"].aside, what="well again")
        service = Service(pipe.engine.app)
        await service.retry([letter.id], actor=acting("test"))
        [stream] = await pipe.finished(1)
        await pipe.letters(1, Query(states=(State.RESOLVED,)))
    assert (stream.stream_id, stream.document.content) == (id, b"KEPT")


async def test_fan_out_and_history(kafka: str, flex: ModuleProcess) -> None:
    left, right = node(name="left"), node(name="right")
    first = node("flex", left, right, name="first")
    async with Pipe(kafka, [first, left, right], {"flex": [flex.address]}) as pipe:
        id = await pipe.send("upper", content=b"abc")
        streams = await pipe.finished(2)
    ways = sorted([step.node_id for step in stream.history] for stream in streams)
    assert ways == sorted([[first.id, left.id], [first.id, right.id]])
    assert {(stream.stream_id, stream.hop_count, stream.document.content) for stream in streams} == {(id, 2, b"ABC")}
    for stream in streams:
        assert [(step.hop, step.outcome, step.instance) for step in stream.history] == [
            (1, Step.OK, flex.address),
            (2, Step.OK, flex.address),
        ]


async def test_a_document_becomes_a_reference(kafka: str, flex: ModuleProcess) -> None:
    at = node()
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        await pipe.send("reference", content=b"x" * 1000)
        [stream] = await pipe.finished(1)
    assert stream.WhichOneof("content") == "document_ref"
    assert stream.document_ref.key == "elsewhere"
    assert stream.ByteSize() < 500, "its content is nowhere"


async def test_the_metrics_of_the_contract(kafka: str) -> None:
    at, other = node(dlq_config=config(1)), node()
    pipe = Pipe(kafka, [at, other], {"flex": [f"127.0.0.1:{claim_port()}"]})
    metrics = measured(pipe.engine)
    async with pipe:
        for _ in range(3):
            await pipe.send(node=at.id)
        await pipe.letters(3)
        counted = f'pipestream_dlq_messages_total{{node_id="{at.id}"}} 3.0'
        await until(lambda: counted in _rendered(metrics), what="counted when they are durable")
        await metrics.probes[0]()
        lines = _rendered(metrics)
        assert f'pipestream_dlq_depth{{node_id="{at.id}"}} 3.0' in lines
        assert f'pipestream_dlq_depth{{node_id="{other.id}"}} 0.0' in lines
        assert f'pipestream_dlq_messages_total{{node_id="{other.id}"}} 0.0' in lines

        async def away(query: Query | None = None) -> Any:
            raise StoreUnavailable("memory")

        pipe.store.letters.tallies = away  # type: ignore[method-assign]
        await metrics.probes[0]()
        assert not [line for line in _rendered(metrics) if line.startswith("pipestream_dlq_depth{")]
    metrics.close()


def _rendered(metrics: Any) -> list[str]:
    from prometheus_client.exposition import generate_latest

    return generate_latest(metrics.registry).decode().splitlines()


async def test_tls(kafka: str, start_module: Starts, tmp_path: Path) -> None:
    """A module that is checked, and one that checks who calls it."""
    cert, key = map(str, _certificate(tmp_path))
    open_to_all, strict = start_module(cert=cert, key=key), start_module("strict", cert=cert, key=key, ca=cert)
    await asyncio.gather(open_to_all.started(), strict.started())
    modules = {"flex": [open_to_all.address], "strict": [strict.address]}
    last = node("strict", dlq_config=config(1))
    first = node("flex", last, dlq_config=config(1))
    known: dict[str, Any] = {"tls_ca": cert, "tls_cert": cert, "tls_key": key}
    async with Pipe(kafka, [first, last], modules, **known) as pipe:
        await pipe.engine.send(Document(content=b"safe"), metadata={"do": "upper"})
        [stream] = await pipe.finished(1)
    assert stream.document.content == b"SAFE"
    async with Pipe(kafka, [first, last], modules, tls_ca=cert) as pipe:
        await pipe.send("upper")
        [dead] = await pipe.dead(last)
    assert dead.error_type in UNREACHED, "who shows no certificate does not get in"
    async with Pipe(kafka, [first, last], modules) as pipe:
        await pipe.send("upper")
        [dead] = await pipe.dead(first)
    assert dead.error_type in UNREACHED, "in the clear nobody gets in"


def _certificate(place: Path) -> tuple[Path, Path]:
    cert, key = place / "cert.pem", place / "key.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -days 1 -keyout {key} -out {cert} -subj /CN=localhost"
    address = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words.split(), *address], check=True, capture_output=True)
    return cert, key
