"""The graph: what it takes, and what it says to what it does not."""

from __future__ import annotations

import logging
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.config.settings import Settings
from redrive.errors import ConfigError, UsageError
from redrive.systems.pipeline import Document, Engine, Graph, GraphNode, Module, Node, PipeStream
from redrive.systems.pipeline.graph import UnknownNode
from redrive.systems.pipeline.module import Rejected
from redrive.systems.pipeline.pipeline_pb2 import ProcessRequest
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.systems.pipeline.wire import Tls

A, B, C = (f"00000000-0000-4000-8000-00000000000{one}" for one in "abc")
YAML = f"""
cluster: prod
modules:
  parse: [127.0.0.1:50051]
nodes:
  - id: {A}
    name: parse
    module: parse
    next: [{B}, {C}]
    timeout: 5s
    dlq_config: {{max_retries: 4, retry_backoff: 250ms, topic: own.dead}}
  - {{id: {B}, module: index}}
  - {{id: {C}, module: store, max_hops: 7, dlq_config: {{enabled: false}}}}
"""


def test_a_graph_from_yaml(tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(YAML)
    graph = Graph.load(tmp_path / "graph.yaml")
    parse = graph.node("parse")
    assert (parse.id, parse.next, parse.timeout) == (A, (B, C), timedelta(seconds=5))
    assert graph.entries == [parse]
    assert (graph.topic(parse), graph.dlq_topic(parse)) == (f"prod.{A}", "own.dead")
    assert graph.dlq_topic(graph.node(B)) == f"dlq.prod.{B}"
    assert graph.topics == [f"prod.{A}", f"prod.{B}", f"prod.{C}", "own.dead", f"dlq.prod.{B}", "prod.finished"]
    assert (graph.node(C).max_hops, graph.node(B).max_hops) == (7, 50)
    delays = [parse.policy.backoff.delay(attempt, random.Random(1)) for attempt in (1, 2, 3)]
    assert delays == [timedelta(milliseconds=250 * attempt) for attempt in (1, 2, 3)], "linear: backoff * attempt"
    assert parse.policy.attempts == 4


def given(**changes: Any) -> dict[str, Any]:
    return {"cluster": "prod", "nodes": [{"id": A, "module": "m", **changes}]}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (None, "cannot be used"),
        ({"cluster": "prod"}, "missing required field `nodes`"),
        ({"cluster": "prod", "nodes": []}, "no nodes"),
        ({"cluster": "pr od", "nodes": [{"id": A, "module": "m"}]}, "no name of a Kafka topic"),
        (given(id="parse"), "no UUID"),
        (given(module=""), "names no module"),
        (given(next=[B]), "no node of the graph"),
        (given(timeout="soon"), f"node {A}"),
        (given(timeout="0s"), "longer than nothing"),
        (given(max_hops=0), "at least 1"),
        (given(dlq_config={"max_retries": 0}), "at least one attempt"),
        (given(dlq_config={"retries": 3}), "unknown field `retries`"),
        (given(dlq_config={"topic": f"prod.{A}"}), "which streams travel on"),
        (given(dlq_config={"topic": "no name"}), "no name of a Kafka topic"),
        ({"cluster": "prod", "nodes": [{"id": A, "module": "m"}] * 2}, "two nodes"),
    ],
)
def test_a_graph_that_is_none(bad: Any, says: str) -> None:
    with pytest.raises((ConfigError, UsageError), match=says):
        Graph.of(bad)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Graph.load(tmp_path / "nowhere.yaml")
    (tmp_path / "bad.yaml").write_text("nodes: [")
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        Graph.load(tmp_path / "bad.yaml")


def test_an_unknown_node() -> None:
    with pytest.raises(UnknownNode, match="no node 'nobody'"):
        Graph.of(given()).node("nobody")


def test_a_cycle_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [
        Node(id=A, module="a", next=(B,)),
        Node(id=B, module="b", next=(C,)),
        Node(id=C, module="c", next=(B,)),
    ]
    with caplog.at_level(logging.WARNING):
        graph = Graph("prod", nodes)
    assert graph.cycle == (B, C, B)
    assert "b → c → b" in caplog.text
    assert "MAX_HOPS" in caplog.text


def test_a_diamond_is_no_cycle() -> None:
    d = A.replace("00a", "00d")
    nodes = [
        Node(id=A, module="a", next=(B, C)),
        Node(id=B, module="b", next=(d,)),
        Node(id=C, module="c", next=(d,)),
        Node(id=d, module="d"),
    ]
    assert Graph("prod", nodes).cycle == ()


def test_an_engine_that_knows_no_address() -> None:
    with pytest.raises(ConfigError, match="REDRIVE_PIPELINE_CONSUL"):
        Engine(Graph.of(given()), Settings(), store="memory://")


@pytest.mark.parametrize(
    ("tls", "says"), [({"tls_ca": "/nowhere"}, "cannot be read"), ({"tls_cert": "/x"}, "go together")]
)
def test_tls_that_cannot_be(tls: dict[str, str], says: str) -> None:
    settings = Settings(sections=(PipelineSettings(consul="http://127.0.0.1:1", **tls),))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=says):
        Engine(Graph.of(given()), settings, store="memory://")


def test_a_module_needs_a_certificate_for_tls() -> None:
    with pytest.raises(ConfigError, match="certificate and its key"):
        Tls(ca=__file__).of_server()


async def test_what_a_module_may_answer() -> None:
    module = Module("m")
    with pytest.raises(ConfigError, match="no function"):
        await module.serve()
    answers: list[Any] = [None, "text", Rejected("not mine")]

    @module.process
    async def process(document: Document) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    request = ProcessRequest(stream=PipeStream(stream_id="s"))
    assert (await module.answer(request)).success
    with pytest.raises(TypeError, match="not 'text'"):
        await module.answer(request)
    rejected = await module.answer(request)
    assert (rejected.success, rejected.error_message) == (False, "not mine")


def test_a_node_reads_the_topic_it_names(tmp_path: Path) -> None:
    own = YAML.replace(f"{{id: {B}, module: index}}", f"{{id: {B}, module: index, kafka_input_topic: index.in}}")
    (tmp_path / "graph.yaml").write_text(own)
    graph = Graph.load(tmp_path / "graph.yaml")
    index = graph.node(B)
    assert isinstance(index, GraphNode)
    assert (graph.topic(index), graph.dlq_topic(index)) == ("index.in", f"dlq.prod.{B}")
    assert graph.node_of("index.in") is index
    assert graph.node_of(f"prod.{B}") is None
    assert "index.in" in graph.topics
    for wrong, says in (("two words", "topic"), (f"prod.{A}", "two nodes"), ("prod.finished", "no node follows")):
        (tmp_path / "graph.yaml").write_text(own.replace("index.in", wrong))
        with pytest.raises((ConfigError, UsageError), match=says):
            Graph.load(tmp_path / "graph.yaml")


@pytest.mark.parametrize(
    ("said", "held"),
    [({}, 93.0), ({"patience": "5m"}, 300.0), ({"patience": "0s"}, 0.0), ({"timeout": "1s"}, 60.0)],
)
def test_how_long_a_stream_is_held_back(said: dict[str, str], held: float) -> None:
    """As long as its attempts would take, and a minute at least; or as its node says."""
    graph = Graph.of({"cluster": "prod", "nodes": [{"id": A, "module": "parse", **said}]})
    assert graph.node(A).held_for == timedelta(seconds=held)


def test_a_patience_that_is_none() -> None:
    with pytest.raises(ConfigError, match="patience"):
        Graph("prod", [Node(id=A, module="parse", patience=timedelta(seconds=-1))])
    with pytest.raises(ConfigError, match=f"node {A}"):
        Graph.of({"cluster": "prod", "nodes": [{"id": A, "module": "parse", "patience": "soon"}]})
