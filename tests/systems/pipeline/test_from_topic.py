"""Replays straight from a DLQ topic, and what the topic has of streams that are too large for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace

from redrive.access.actors import Role
from redrive.access.approvals import NeedsApproval
from redrive.access.tokens import Tokens
from redrive.access.trail import Phase
from redrive.admin.api import create_api
from redrive.app import Redrive
from redrive.config.settings import Access, Settings
from redrive.errors import StoreUnavailable, UsageError
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from redrive.stores.memory import MemoryStore
from redrive.systems.pipeline import DlqMessage, Document, Node
from redrive.systems.pipeline.dlq import Chosen
from redrive.systems.pipeline.engine import with_pipeline
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.systems.pipeline.topic_replay import replay_topic
from redrive.systems.use import routers_of
from redrive.transports.kafka.writer import Parcel, Writer
from tests.actors import acting
from tests.admin.asking import asking, running
from tests.servers.ports import claim_port
from tests.systems.pipeline.test_collected import dead, stream_bytes
from tests.systems.pipeline.world import ModuleProcess, Pipe, command, config, environment, node, written


async def put(pipe: Pipe, at: Node, *values: bytes) -> None:
    """As an engine in Java would."""
    writer: Writer = pipe.engine.transport.writer  # type: ignore[attr-defined]
    now = datetime.now(UTC)
    await writer.outcomes([Parcel(pipe.graph.dlq_topic(at), value, None, [], now) for value in values])


def served(pipe: Pipe, place: Path, store: str) -> Settings:
    """As `redrive up` has them."""
    own = PipelineSettings(
        transport=f"kafka://{pipe.kafka}", graph=str(written(pipe, place)), group=f"engines-{pipe.graph.cluster}"
    )
    return with_pipeline(Settings(store=store, transports={"default": store}, sections=(own,)))


async def test_the_route_reads_the_topic_itself(kafka: str, flex: ModuleProcess, tmp_path: Path) -> None:
    """The store knows nothing of these streams. Asked again, only what is new is sent."""
    at = node(name="at")
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        topic = pipe.graph.topic(at)
        await put(pipe, at, *(dead(stream_bytes(f"s-{number}"), topic, original_offset=number) for number in range(4)))
        await put(pipe, at, dead(stream_bytes("s-4"), topic, error_type="MAX_HOPS"), b"\xff\xff", dead(b"", topic))
        settings = served(pipe, tmp_path, f"sqlite:///{tmp_path}/other.db")
        async with Redrive(settings=settings) as app:
            tokens = Tokens(app.store.documents, app.clock)
            api = create_api(Service(app), tokens=tokens, routers=routers_of(settings))

            async def ask(body: dict[str, Any] | None = None) -> int:
                async with asking(api, (await tokens.create("test", Role.OPERATOR))[1]) as client:
                    path = f"/admin/dlq/{at.id}/replay?from=topic"
                    answer = await (client.post(path) if body is None else client.post(path, json=body))
                    assert answer.status_code == 202, answer.text
                    return int(answer.json()["total"])

            async with running(api):
                kind = {"error_type": "TIMEOUT"}
                assert await ask({**kind, "dry_run": True}) == 4
                assert await ask({**kind, "limit": 3}) == 3
                assert await ask(kind) == 1
                assert await ask(kind) == 0, "each goes back once"
                assert await ask() == 1, "the one of another kind"
                assert await ask() == 0
        streams = await pipe.finished(5)
        assert await pipe.store.letters.tallies() == []
    assert sorted(stream.stream_id for stream in streams) == [f"s-{number}" for number in range(5)]


async def test_many_streams_of_a_topic_wait_for_a_second_person(kafka: str, tmp_path: Path) -> None:
    """Those with a letter and those without are one act, however many batches of it there are."""
    at = node(name="at", dlq_config=config(1))
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]}, store=(store := MemoryStore())) as pipe:
        await pipe.send_some(2, "upper")
        await pipe.letters(2)
        topic = pipe.graph.topic(at)
        await put(pipe, at, *(dead(stream_bytes(f"s-{number}"), topic, original_offset=number) for number in range(2)))
    settings = replace(served(pipe, tmp_path, "memory://"), access=Access(approve_over=1))
    async with Redrive(settings=settings, store=store) as app:
        service, ann = Service(app), acting("ann")

        async def sent() -> int:
            return await replay_topic(service, pipe.graph, at, Chosen(), actor=ann)

        with pytest.raises(NeedsApproval) as waits:
            await sent()
        assert (waits.value.approval.total, await store.letters.count(Query(states=(State.REPLAYING,)))) == (4, 0)
        await service.four_eyes.approve(waits.value.approval.id, actor=acting("bob"))
        await put(pipe, at, dead(stream_bytes("late"), topic, original_offset=7))
        with pytest.raises(NeedsApproval) as more:
            await sent()
        assert more.value.approval.total == 5, "another selection waits anew"
        await service.four_eyes.approve(more.value.approval.id, actor=acting("bob"))
        assert await sent() == 5
        told = [(line.action, line.outcome) async for line in service.trail.lines() if line.actor == ann.name]
        assert told[-4:] == [("replay", Phase.WAITS), ("replay", Phase.BEGAN)] * 2
        assert ("replay", Phase.BEGAN) in told[:-4], "it was in the trail before the first stream went"
        assert await store.letters.count(Query(states=(State.REPLAYING,))) == 2
        assert await sent() == 0


async def test_without_a_store_and_with_one(kafka: str, tmp_path: Path) -> None:
    """Letters of the store go as every replay goes, and those that are done with do not; all go while it is away."""
    at = node(name="at", dlq_config=config(1))
    store = MemoryStore()
    async with Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]}, store=store) as pipe:
        ids = await pipe.send_some(3, "upper")
        letters = {letter.message.correlation_id: letter for letter in await pipe.letters(3)}
    settings = served(pipe, tmp_path, "memory://")
    async with Redrive(settings=settings, store=store) as app:
        done = letters[ids[0]].id
        await store.letters.move([done], expect=(State.PENDING,), to=State.ARCHIVED, now=app.clock.now())
        service = Service(app)

        async def sent() -> int:
            return await replay_topic(service, pipe.graph, at, Chosen(), actor=acting("test"))

        assert await sent() == 2
        assert await store.letters.count(Query(states=(State.REPLAYING,))) == 2
        assert await sent() == 0, "they are on their way"
        down = StoreUnavailable("memory", "disk is full")

        async def away(*given: Any, **more: Any) -> Any:
            raise down

        store.letters.search = away  # type: ignore[method-assign]
        assert await sent() == 3
        assert await sent() == 0, "remembered by the group"
    raws = await pipe.records(pipe.graph.topic(at), 8)
    assert len(raws) == 8


async def test_only_kafka_has_a_topic(tmp_path: Path) -> None:
    at = node()
    async with Redrive(
        settings=Settings(sections=(PipelineSettings(transport="sqlite:///x.db"),)), store="memory://"
    ) as app:
        pipe = Pipe("unused:9092", [at], {"flex": ["127.0.0.1:1"]}, transport=f"sqlite:///{tmp_path}/p.db")
        with pytest.raises(UsageError, match="replay those"):
            await replay_topic(Service(app), pipe.graph, at, Chosen(), actor=acting("test"))
        await pipe.engine.aclose()


async def test_by_command(kafka: str, flex: ModuleProcess, tmp_path: Path) -> None:
    at = node(name="at")
    async with Pipe(kafka, [at], {"flex": [flex.address]}) as pipe:
        env = environment(pipe, tmp_path, REDRIVE_PIPELINE_GROUP=f"engines-{pipe.graph.cluster}")
        await put(pipe, at, dead(stream_bytes("s-1"), pipe.graph.topic(at)))
        words = ("pipeline", "replay", "at", "--from", "topic")
        dry = await command(env, *words, "--dry-run")
        assert "1 stream would be sent back" in dry.stdout, dry.stderr
        assert "1 stream sent back" in (await command(env, *words, "--yes")).stdout
        again = await command(env, *words, "--yes")
        assert (again.exit_code, "nothing was sent" in again.stderr) == (1, True)
        since = ("--since", (datetime.now(UTC) + timedelta(hours=1)).isoformat())
        assert (await command(env, *words, *since, "--yes")).exit_code == 1
        await pipe.finished(1)


@pytest.mark.parametrize(("content", "steps"), [(1_000, 0), (60_000, 0), (100, 900)])
async def test_every_record_of_a_dlq_topic_is_a_dlq_message(kafka: str, content: int, steps: int) -> None:
    """Its document, its history or our own headers may be too large for the topic: the letter has all of it."""
    at = node(dlq_config=config(1))
    pipe = Pipe(kafka, [at], {"flex": [f"127.0.0.1:{claim_port()}"]})
    await asyncio.to_thread(make_topic, kafka, pipe.graph.dlq_topic(at), 4_000 if content == 1_000 else 20_000)
    async with pipe:
        id = await pipe.engine.send(
            Document(document_id="d-1", content=b"x" * content),
            metadata={f"step-{number}": "x" * 100 for number in range(steps)},
        )
        [letter] = await pipe.letters(1)
        [found] = await pipe.dead(at)
        [raw] = await pipe.records(pipe.graph.dlq_topic(at), 1)
    assert (found.error_type, found.failed_node_id, found.stream.stream_id) == ("CONNECTION_REFUSED", at.id, id)
    assert "refused" in found.error_message
    assert dict(raw.headers())["redrive-stub"] == letter.id.encode()
    assert len(letter.message.body) > content, "the store has it as it came"
    if content == 1_000:
        assert found.stream.document.content == b"x" * 1_000, "only our headers were too large"
    else:
        assert found.stream.document_ref.key == f"redrive-letter/{letter.id}"
    if content == 60_000:
        assert (found.stream.document_ref.document_id, found.stream.document_ref.size) == ("d-1", content)
    assert DlqMessage.FromString(raw.value()) == found


def make_topic(kafka: str, topic: str, size: int) -> None:
    """Before anybody else does, and with that limit."""
    made = NewTopic(topic, 1, 1, config={"max.message.bytes": str(size)})
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([made])[topic].result(30)
