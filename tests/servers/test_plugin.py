"""What the pytest plugin promises to a whole run."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SMOKE = "tests/servers/test_smoke.py"


def _pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True)


def test_without_servers_their_tests_are_left_out_and_counted() -> None:
    run = _pytest(SMOKE, "tests/servers/test_install.py", "--collect-only", "-q", REDRIVE_SERVERS="none")
    assert run.returncode == 0
    assert "tests that need a real server are left out (REDRIVE_SERVERS=none)" in run.stdout
    assert "test_installing_twice" in run.stdout
    assert "test_redis" not in run.stdout


def test_a_missing_server_fails_the_run_and_says_what_to_do(tmp_path: Path) -> None:
    run = _pytest(SMOKE, "-k", "consul", REDRIVE_SERVERS="", REDRIVE_SERVERS_HOME=str(tmp_path))
    assert run.returncode != 0
    assert "consul-1.21.0: missing or damaged; run make servers" in run.stdout + run.stderr


def test_the_marker_selects_what_uses_a_server() -> None:
    run = _pytest("tests/servers", "-m", "servers", "--collect-only", "-q", REDRIVE_SERVERS="")
    assert "test_smoke.py::test_redis" in run.stdout
    assert "test_install.py" not in run.stdout
