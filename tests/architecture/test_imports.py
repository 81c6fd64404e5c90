"""The direction of imports: what lets a reader trust that a rule has one place, and a driver one folder."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
OUTSIDE = (
    "redrive.alerts",
    "redrive.app",
    "redrive.service",
    "redrive.worker",
    "redrive.cli",
    "redrive.admin",
    "redrive.registry",
)
SHELL = ("redrive.app", "redrive.service", "redrive.cli", "redrive.admin")
DRIVERS = (
    *("sqlite3", "redis", "aioredis", "hiredis", "confluent_kafka", "aiokafka", "kafka", "pika", "aio_pika", "aiormq"),
    *("pymongo", "motor", "opensearchpy", "elasticsearch", "grpc", "litestar", "uvicorn", "httpx", "requests", "boto3"),
)
OPTIONAL = ("litestar", "uvicorn", "prometheus_client", "opentelemetry", "pydantic", "yaml", "uvloop")


def _module(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _modules(package: str) -> list[Path]:
    base = SRC.joinpath(*package.split("."))
    return sorted(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]


def _imports(path: Path) -> Iterator[str]:
    """Every module it imports, wherever in the file; `from a import b` may mean a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _broken(package: str, forbidden: tuple[str, ...], *, allowed: tuple[str, ...] = ()) -> list[str]:
    def is_in(name: str, family: tuple[str, ...]) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in family)

    return [
        f"{_module(path)} imports {name}"
        for path in _modules(package)
        for name in _imports(path)
        if is_in(name, forbidden) and not is_in(name, allowed)
    ]


@pytest.mark.parametrize("package", ["redrive.flow", "redrive.forensics"])
def test_the_rules_know_no_driver_and_no_concrete_backend(package: str) -> None:
    backends = (
        "redrive.transports",
        "redrive.stores",
        "redrive.drivers",
        "redrive.systems",
        "redrive.upkeep",
    )
    seams = ("redrive.transports.base", "redrive.stores.base")
    assert _broken(package, (*OUTSIDE, *backends, *DRIVERS), allowed=seams) == []


@pytest.mark.parametrize("package", ["redrive.transports", "redrive.stores"])
def test_a_backend_knows_nothing_of_who_uses_it(package: str) -> None:
    path = ("redrive.flow.receive", "redrive.flow.settle", "redrive.flow.attempt", "redrive.flow.replay")
    assert _broken(package, (*path, *OUTSIDE, "redrive.upkeep")) == []


def test_the_model_stands_on_nothing_of_ours() -> None:
    assert _broken("redrive.model", ("redrive",)) == []


@pytest.mark.parametrize("module", ["policy", "config.durations", "clock", "errors", "telemetry.events"])
def test_what_everything_stands_on_imports_no_shell(module: str) -> None:
    assert _broken(f"redrive.{module}", (*OUTSIDE, "redrive.upkeep", "redrive.drivers", *DRIVERS)) == []


def test_the_service_is_not_reached_through_its_callers() -> None:
    assert _broken("redrive.service", ("redrive.cli", "redrive.admin", *DRIVERS)) == []


def _imported_by(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import redrive", "import redrive.worker", "import redrive.service"])
def test_importing_the_core_imports_nothing_of_an_extra(statement: str) -> None:
    assert _imported_by(statement).isdisjoint((*OPTIONAL, *DRIVERS))


def test_only_the_backend_that_is_used_is_imported() -> None:
    used = _imported_by("import redrive; app = redrive.Redrive(transport='memory://', store='memory://'); app.store")
    assert "sqlite3" not in used
