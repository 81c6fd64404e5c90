"""The workflow example runs as it stands."""

import json
import shutil
from pathlib import Path

from tests.admin.process import python, redrive

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_what_fails_is_kept_retried_and_shown(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "workflow.py", tmp_path)
    async with python(tmp_path, "workflow.py") as app:
        await app.line("partial: kept as wf_")
        await app.line("network: the model server did not answer for /repos/shop, left to do: /repos/shop")
        await app.line("retried: 1 succeeded, 0 open")
        assert await app.end() == 0
    async with redrive(tmp_path, "--store", "sqlite:///workflow.db", "groups", "--closed", "--json") as shown:
        await shown.end()
        assert shown.child.stdout is not None
        [group] = json.loads(await shown.child.stdout.read())["groups"]
    assert (group["count"], group["sources"], group["states"]) == (1, ["workflow"], {"resolved": 1})
