"""A looping pipeline: the engine itself, over gRPC, with modules in this process and streams in SQLite.

Somebody has drawn an arrow back: what is scanned is straightened, read, straightened and read again until it has passed
as many nodes as a stream may. And one module fails with tables that have no header.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive.config.settings import Settings
from redrive.demo.past import Past
from redrive.demo.people import People
from redrive.demo.stage import TENANTS, Life, Stage, together
from redrive.model import Message
from redrive.systems.pipeline import Document, Engine, Graph, Module, PipeStream, Step
from redrive.systems.pipeline.engine import with_pipeline
from redrive.systems.pipeline.settings import PipelineSettings

MODULES = ("fetch", "tables", "index", "straighten", "ocr")
NODE = "0b6f0d5e-5a43-4f0e-9d7c-1f9f6f00000{}"
MOST_HOPS = 8
FETCH, TABLES, INDEX, SCAN, STRAIGHTEN, OCR = (NODE.format(number) for number in range(1, 7))
GRAPH = f"""\
cluster: docs
finished: null # what has passed the last node is forgotten
max_hops: {MOST_HOPS}
nodes:
  - {{id: {FETCH}, name: fetch, module: fetch, kafka_input_topic: docs.fetch, next: [{TABLES}]}}
  - {{id: {TABLES}, name: tables, module: tables, kafka_input_topic: docs.tables, next: [{INDEX}]}}
  - {{id: {INDEX}, name: index, module: index, kafka_input_topic: docs.index}}
  - {{id: {SCAN}, name: scan, module: fetch, kafka_input_topic: docs.scan, next: [{STRAIGHTEN}]}}
  - {{id: {STRAIGHTEN}, name: straighten, module: straighten, kafka_input_topic: docs.straighten, next: [{OCR}]}}
  # the second of these is the mistake
  - {{id: {OCR}, name: ocr, module: ocr, kafka_input_topic: docs.ocr, next: [{STRAIGHTEN}]}}
"""
EVERY, SCANNED = 4.0, 25.0  # seconds between documents, and between scans


async def work(document: Document) -> Document:
    """What most modules do: they pass it on."""
    return document


async def read_tables(document: Document) -> Document:
    if b"<th>" not in document.content:
        raise ValueError("page 3: a table without a header row")
    return document


class PipelineLife(Life):
    name = "pipeline"
    watch = "an arrow back lets scans go round until they have passed too many nodes; `tables` fails without a header"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.graph_file = stage.place / "graph.yaml"
        self.graph_file.write_text(GRAPH)
        self.graph = Graph.load(self.graph_file)
        streams = f"sqlite:///{stage.place / 'streams.db'}"  # a file of its own: it is a transport of its own
        own = PipelineSettings(transport=streams, graph=str(self.graph_file), concurrency=4)
        self.own = stage.settings_for("engine-1", "0.14.0", own)
        self.ending = asyncio.Event()
        self.serving: list[asyncio.Task[None]] = []
        self.number = 2000

    def settings(self, settings: Settings) -> Settings:
        return with_pipeline(settings.having(self.own.of(PipelineSettings)))

    async def open(self) -> None:
        """Serve the modules, each at a port of its own, and make an engine that knows where."""
        for name in MODULES:
            address = asyncio.get_running_loop().create_future()
            module = Module(name)
            module.process(read_tables if name == "tables" else work)
            serving = module.serve(started=address.set_result, stop=self.ending)
            self.serving.append(asyncio.create_task(serving))
            self.graph.modules[name] = (await address,)
        self.engine = Engine(self.graph, self.own, store=self.stage.url, clock=self.stage.clock)

    def stream(self, node: str, kind: str, hops: int = 0, header: bool = True) -> Message:
        """A document on its way, as it comes to that node."""
        self.number += 1
        name = f"{kind}-{self.number}"
        content = b"<table><tr><th>item</th></tr></table>" if header else b"<table><tr><td>4711</td></tr></table>"
        document = Document(document_id=f"{name}.html", content_type="text/html", content=content)
        stream = PipeStream(stream_id=f"{name}-{self.stage.clock.new_id()[-6:]}", document=document, hop_count=hops)
        ways = [self.graph.node(name) for name in ("scan", "straighten", *("ocr", "straighten") * MOST_HOPS)]
        for hop in range(hops):
            at = ways[hop]
            stream.history.append(Step(node_id=at.id, module=at.module, hop=hop + 1, attempt=1, outcome=Step.OK))
        topic = self.graph.topic(self.graph.node(node))
        id, tenant = stream.stream_id, self.stage.random.choice(TENANTS)
        body = stream.SerializeToString()
        return self.engine.app.message(topic, body, id=id, key=id, correlation_id=id, tenant=tenant)

    async def past(self, past: Past) -> None:
        app = self.engine.app
        for at in [*past.times(30, 25, 6), *past.times(24, 0.05, 170, late=2.5)]:
            await past.handle(app, self.stream("ocr", "scan", hops=MOST_HOPS), at)
        for at in past.times(44, 0.5, 64):
            await past.handle(app, self.stream("tables", "report", header=False), at)

    async def people(self, people: People) -> None:
        round_and_round = await people.group("docs.ocr", "passed")
        await people.assign(round_and_round, "ann", "ocr leads back to straighten since Tuesday. Who drew that arrow?")
        await people.ask_to_archive(round_and_round)
        tables = await people.group("docs.tables", "tables")
        await people.mute(tables, timedelta(days=2), "the supplier sends headers from Friday on")

    async def live(self) -> None:
        await together(lambda: self.stage.work(self.engine.app), self._documents, self._scans)

    async def _documents(self) -> None:
        while True:
            whole = not self.stage.chance(0.06)
            await self.stage.send(self.engine.app, self.stream("fetch", "report", header=whole))
            await self.stage.pause(EVERY)

    async def _scans(self) -> None:
        while True:
            await self.stage.send(self.engine.app, self.stream("scan", "scan"))
            await self.stage.pause(SCANNED)

    async def aclose(self) -> None:
        self.ending.set()
        await asyncio.gather(*self.serving)
        await self.engine.aclose()
