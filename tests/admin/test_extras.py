"""Without the libraries of an extra, the error is the pip line."""

from pathlib import Path

import pytest

from redrive.extras import install
from tests.admin.process import python

_WITHOUT = (
    "import sys; sys.modules[{name!r}] = None; from redrive.cli import main; main({words!r}, prog_name='redrive')"
)


@pytest.mark.parametrize("name", ["litestar", "uvicorn", "prometheus_client"])
@pytest.mark.parametrize("command", ["up", "demo"])
async def test_a_server_without_its_extra_says_what_to_install(tmp_path: Path, name: str, command: str) -> None:
    async with python(tmp_path, "-c", _WITHOUT.format(name=name, words=[command, "--port", "0"])) as child:
        assert await child.end() == 2
        said = await child.errors()
    assert install("server") in said
    assert "Traceback" not in said


async def test_tracing_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import redrive.telemetry.tracing"
    async with python(tmp_path, "-c", code) as child:
        assert await child.end() == 1
        assert install("tracing") in await child.errors()
