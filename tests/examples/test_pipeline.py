"""The pipeline example runs as its README says, with no server at all; and the same over Kafka."""

import shutil
from pathlib import Path

import pytest

from tests.admin.process import python, redrive
from tests.servers.kafka import Kafka

SOON = 90.0  # five processes begin
EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"


@pytest.mark.parametrize("on", ["sqlite", "kafka"])
async def test_a_tour_of_three_modules_one_of_which_has_a_bug(
    tmp_path: Path, on: str, request: pytest.FixtureRequest
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "pipeline")
    place, words = tmp_path / "pipeline", list[str]()
    if on == "kafka":
        server: Kafka = request.getfixturevalue("kafka_server")
        words = [f"kafka://{server.bootstrap}"]
    graph = (place / "graph.yaml").read_text()  # a cluster of its own, on a Kafka that others use too
    (place / "graph.yaml").write_text(graph.replace("cluster: example", f"cluster: example-{tmp_path.name}"))
    async with python(place, "run.py", *words) as run:
        stream = (await run.line("^c.txt is stream ([0-9a-f-]+)", SOON))[1]
        await run.line("nobody taught me to shout digits", SOON)  # its group
        await run.line(f"^. redrive pipeline trace {stream}", SOON)
        await run.line("DLQ of shout .* RETRIES_EXHAUSTED", SOON)
        await run.line("^. redrive pipeline replay shout", SOON)
        await run.line(f"^. redrive pipeline trace {stream}", SOON)
        await run.line("1 +parse +OK", SOON)
        await run.line("2 +shout +OK", SOON)
        await run.line("3 +count +OK", SOON)
        await run.line("  finished  ", SOON)
        assert await run.end() == 0, await run.errors()
        assert "resolved 1" in await run.errors()


async def test_kafka_is_not_needed_for_it(tmp_path: Path) -> None:
    """Whoever has only `redrive[grpc,yaml]` can run a pipeline on one machine."""
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from redrive.systems.pipeline import Engine, Graph\n"
        "from redrive.config.load import load\n"
        "graph = Graph.load('graph.yaml')\n"
        "graph.modules = dict.fromkeys(('parse', 'shout', 'count'), ('127.0.0.1:1',))\n"
        "print(type(Engine(graph, load()).transport).__name__)\n"
    )
    shutil.copytree(EXAMPLE, tmp_path / "pipeline")
    async with python(tmp_path / "pipeline", "-c", program) as run:
        await run.line("LocalStreams", SOON)
    async with redrive(tmp_path / "pipeline", "pipeline", "trace", "nobody") as run:
        assert await run.end() == 1
        assert "no topic of the graph has a stream 'nobody'" in await run.errors()
