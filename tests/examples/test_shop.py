"""The first example that anybody runs."""

import json
import shutil
import signal
from pathlib import Path

from tests.admin.process import python, redrive

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_the_shop_sends_retries_and_buries(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "shop.py", tmp_path)
    async with python(tmp_path, "shop.py") as sender:
        await sender.line("sent order 3")
        assert await sender.end() == 0
    async with redrive(tmp_path, "run", "shop:app") as worker:
        await worker.line("charged order 1 at attempt 1")
        await worker.line("charged order 2 at attempt 2")
        assert await worker.end(signal.SIGINT) == 0
    async with redrive(tmp_path, "letters", "--json") as listed:
        await listed.end()
        assert listed.child.stdout is not None
        (letter,) = json.loads(await listed.child.stdout.read())["letters"]
    assert letter["error_type"] == "redrive.errors.Permanent"
    assert letter["tenant"] == "acme"


async def test_it_runs_from_the_root_of_the_repository_too(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    async with redrive(tmp_path, "run", "examples.shop:app", "--help") as told:
        assert await told.end() == 0
    async with python(tmp_path, "-c", "from examples.shop import app; print(*app.handlers)") as imported:
        await imported.line("orders")
