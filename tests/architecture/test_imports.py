"""`.importlinter` is the list of what may import what, and `make check` holds it. Here: that no room is missing in it,
and what importing costs."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REDRIVE = ROOT / "src" / "redrive"
DRIVERS = (
    *("sqlite3", "redis", "aioredis", "hiredis", "confluent_kafka", "aiokafka", "kafka", "pika", "aio_pika", "aiormq"),
    *("pymongo", "motor", "opensearchpy", "elasticsearch", "grpc", "litestar", "uvicorn", "httpx", "requests", "boto3"),
)
OPTIONAL = ("litestar", "uvicorn", "prometheus_client", "opentelemetry", "pydantic", "yaml", "uvloop")
SEAMS = {"base", "paging", "recording"}  # protocols, and what speaks only to them


def _list(contract: str, key: str) -> set[str]:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    return set(rules[f"importlinter:contract:{contract}"][key].split())


def _inside(package: str) -> set[str]:
    """The modules and packages right in that one."""
    place = REDRIVE.joinpath(*package.split(".")[1:])
    names = {path.stem for path in place.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    return {f"{package}.{name}" for name in names - {"__init__", "__main__"} - SEAMS}


def _systems() -> set[str]:
    return {name for name in _inside("redrive.systems") if (REDRIVE / "systems" / name.rpartition(".")[2]).is_dir()}


def test_every_room_of_the_core_is_kept_from_the_systems() -> None:
    rooms = _inside("redrive") - {"redrive.systems", "redrive.integrations", "redrive.demo"}
    assert _list("core-knows-no-system", "source_modules") == rooms
    forbidden = _list("core-knows-no-system", "forbidden_modules")
    assert forbidden - _inside_or_nothing("redrive.integrations") == {*_systems(), "redrive.demo"}
    assert _list("systems-know-no-system", "modules") == _systems()


def _inside_or_nothing(package: str) -> set[str]:
    """Other people's workers, once there are some: the core knows none of them either."""
    return {package} if (REDRIVE / package.rpartition(".")[2]).is_dir() else set()


def test_every_backend_is_kept_from_the_rules_and_from_the_others() -> None:
    backends = _inside("redrive.transports") | _inside("redrive.stores")
    assert backends <= _list("rules-are-pure", "forbidden_modules")
    apart = _list("one-backend-is-one-folder", "modules") | _list("one-store-is-one-folder", "modules")
    shared = {f"redrive.stores.{name}" for name in ("pieces", "rounds", "scoped", "shape", "texts", "versions")}
    assert backends - apart == shared


def test_the_model_is_kept_from_every_room() -> None:
    assert _list("model-is-the-ground", "forbidden_modules") == _inside("redrive") - {"redrive.model"}


def _imported_by(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import redrive", "import redrive.worker", "import redrive.service"])
def test_importing_the_core_imports_nothing_of_an_extra(statement: str) -> None:
    assert _imported_by(statement).isdisjoint((*OPTIONAL, *DRIVERS))


@pytest.mark.parametrize(
    "statement", ["from redrive.config.load import load; load()", "import redrive; redrive.Redrive()"]
)
def test_the_settings_of_every_system_import_nothing_of_an_extra(statement: str) -> None:
    assert _imported_by(statement).isdisjoint((*OPTIONAL, *DRIVERS, "google"))


def test_only_the_backend_that_is_used_is_imported() -> None:
    used = _imported_by("import redrive; app = redrive.Redrive(transport='memory://', store='memory://'); app.store")
    assert "sqlite3" not in used
