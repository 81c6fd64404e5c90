"""The pipeline example runs as it stands."""

import shutil
from pathlib import Path

from tests.admin.process import python
from tests.servers.kafka import Kafka

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"


async def test_three_modules_and_one_that_is_killed(tmp_path: Path, kafka_server: Kafka) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "pipeline")
    async with python(tmp_path / "pipeline", "run.py", f"kafka://{kafka_server.bootstrap}") as run:
        await run.line("c.txt is in the DLQ of dlq.example.7d3c2a52-6a0e-4f0c-9a58-2f6f2c6f1a02: ")
        await run.line("c.txt went through after all")
        assert await run.end() == 0
