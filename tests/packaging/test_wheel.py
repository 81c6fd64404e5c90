"""The wheel, as a stranger gets it: into an empty environment, with and without extras."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
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
    shown = ("index.html", "main.js", "style.css", "pages/overview.js", "vendor/preact.js", "vendor/preact.LICENSE")
    assert {f"redrive/console/{file}" for file in shown} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "tools"))]


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment with the core alone."""
    return environment(tmp_path_factory.mktemp("bare"), str(wheel))


def test_every_command_shows_its_help_without_its_extra_and_names_it(bare: str) -> None:
    said = json.loads(run(bare, "-c", HELP))
    assert {"files dlq re-drive", "pipeline engine", "tickets worker", "email dlq list", "up"} <= set(said)
    assert not {words: told for words, (code, told) in said.items() if code != 0 or not told.startswith("Usage: ")}
    needs = {
        "files": "rabbitmq",
        "tickets": "kafka,redis,mongodb",
        "pipeline": "grpc",
        "email": "email",
        "bullmq": "bullmq",
        "up": "server",
        "demo": "server",
        "login": "remote",
        "whoami": "remote",
    }
    for words, (_, told) in said.items():
        extra = needs.get(words.partition(" ")[0], "")
        assert ("not installed here" in told) == bool(extra), words
        assert not extra or f"redrive[{extra}] @ file://" in told, words


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("up", "server"),
        ("demo", "server"),
        ("files dlq list", "rabbitmq"),
        ("files worker shop:handlers", "rabbitmq"),
        ("pipeline module shop:module", "grpc"),
        ("tickets query", "kafka,redis,mongodb"),
        ("tickets topics", "kafka"),
        ("email status", "redis"),
        ("email worker", "email"),
        ("collect kafka://127.0.0.1/orders.DLT", "kafka"),
        ("collect amqp://127.0.0.1/orders.dlq", "rabbitmq"),
        ("letters --store mongodb://127.0.0.1/x", "mongodb"),
        ("letters --store redis://127.0.0.1", "redis"),
        ("letters --store opensearch://127.0.0.1", "opensearch"),
        ("letters --store tickets+mongodb://127.0.0.1", "kafka,redis,mongodb"),
    ],
)
def test_a_command_that_lacks_its_extra_says_how_to_install_it_from_where_redrive_came_from(
    bare: str, wheel: Path, tmp_path: Path, words: str, extra: str
) -> None:
    command = [bare, "-m", "redrive", *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"needs an extra: pip install 'redrive[{extra}] @ {wheel.as_uri()}'\n")


def test_the_doctor_names_every_extra_that_is_not_installed(bare: str, tmp_path: Path) -> None:
    [found] = [line for line in run(bare, "-m", "redrive", "doctor", cwd=tmp_path).splitlines() if "extras" in line]
    wanted = sorted(
        set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]) - {"all"}
    )
    assert f"not installed: {', '.join(wanted)} (" in found
    assert "all installed" in run(sys.executable, "-m", "redrive", "doctor", cwd=tmp_path)


def test_the_core_alone_runs_a_handler_and_the_command(bare: str, tmp_path: Path) -> None:
    python = bare
    assert "letters" in run(python, "-m", "redrive", "--help")
    run(python, "-m", "redrive", "init", "shop", cwd=tmp_path)
    assert {file.name for file in (tmp_path / "shop").iterdir()} == {"shop.py", "redrive.toml", "test_shop.py"}
    assert "handled 3" in run(python, "-c", PROGRAM, cwd=tmp_path)
    said = subprocess.run([python, "-m", "redrive", "up"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert said.returncode == 2
    assert "pip install 'redrive[server] @ " in said.stderr
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


HELP = """
import json
import click
from click.testing import CliRunner
from redrive.cli import main

def every(command, ctx, words):
    yield words
    for name in command.list_commands(ctx) if isinstance(command, click.Group) else ():
        yield from every(command.get_command(ctx, name), ctx, [*words, name])

said = {}
for words in every(main, click.Context(main), []):
    done = CliRunner().invoke(main, [*words, "--help"], prog_name="redrive")
    said[" ".join(words)] = (done.exit_code, done.output)
print(json.dumps(said))
"""
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
