"""The wheel, as a stranger gets it: into an empty environment, with and without extras."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HEAVY = ("litestar", "uvicorn", "prometheus_client", "opentelemetry", "pydantic", "yaml", "uvloop")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT))
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "redrive/py.typed",
        "redrive/drivers/sqlite/schema.sql",
        "redrive/transports/sqlite/queue.sql",
        "redrive/stores/sqlite/letters.sql",
    } <= names
    scripts = ("shared", "add", "fetch", "settle", "extend", "depth", "govern", "listing", "pause", "tenants")
    assert {f"redrive/transports/redis/lua/{script}.lua" for script in scripts} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "tools"))]


def test_the_core_alone_runs_a_handler_and_the_command(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "bare", str(wheel))
    assert "letters" in run(python, "-m", "redrive", "--help")
    assert "handled 3" in run(python, "-c", PROGRAM, cwd=tmp_path)
    said = subprocess.run([python, "-m", "redrive", "up"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert said.returncode == 2
    assert "pip install 'redrive[server]'" in said.stderr
    for name in HEAVY:
        assert run(python, "-c", f"import importlib.util as u; print(u.find_spec({name!r}))").strip() == "None"


def test_with_all_extras_the_server_starts(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "full", f"{wheel}[all]")
    assert "--port" in run(python, "-m", "redrive", "up", "--help")
    assert "ok" in run(python, "-c", "import redrive.admin.api, redrive.telemetry.tracing; print('ok')")


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from redrive.cli import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert run(sys.executable, "-c", program).strip() == "[]"


PROGRAM = """
import asyncio
from redrive import Policy, Redrive
from redrive.worker import Worker

app = Redrive()
seen = []

@app.handler("orders", policy=Policy(attempts=1))
async def handle(order: dict) -> None:
    seen.append(order["n"])
    if len(seen) == 3:
        worker.stop()

async def main():
    global worker
    async with app:
        worker = Worker(app)
        for n in range(3):
            await app.send("orders", {"n": n})
        await worker.run()
        print("handled", len(seen))

asyncio.run(main())
"""


def environment(where: Path, requirement: str) -> str:
    """An empty environment with that in it."""
    run(sys.executable, "-m", "venv", str(where))
    python = str(where / "bin" / "python")
    constraints = str(ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", constraints, requirement)
    return python


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout
