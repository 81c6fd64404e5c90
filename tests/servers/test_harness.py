"""What the harness promises about the processes, ports and directories of servers."""

import os
import select
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.servers import web
from tests.servers.consul import Consul
from tests.servers.errors import NotInstalled, ServerFailed
from tests.servers.fixtures import StartsServer
from tests.servers.opensearch import OpenSearch
from tests.servers.ports import claim_port
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis
from tests.servers.rundirs import run_directory

REPOSITORY = Path(__file__).parents[2]
# Starts a server, tells its process ids and where it writes, and then waits to be killed.
PARENT = """
import sys
from tests.servers.{module} import {name}
server = {name}().start()
helper = getattr(server, "port_mapper", server)
print(server.pid, helper.pid, server.directory.parent, flush=True)
sys.stdin.read()
"""


def test_a_server_that_was_killed_says_so(start_server: StartsServer) -> None:
    server = start_server(Redis)
    ended = os.pidfd_open(server.pid)
    os.kill(server.pid, signal.SIGKILL)
    assert _has_ended(ended)
    with pytest.raises(ServerFailed, match="ended by SIGKILL"):
        server.require_running()


def test_a_server_that_cannot_come_up_shows_its_log(start_server: StartsServer) -> None:
    with pytest.raises(ServerFailed, match="appendfsync sometimes"):
        start_server(lambda: Redis(fsync="sometimes"))


def test_a_restart_keeps_data_and_port(start_server: StartsServer) -> None:
    server = start_server(Consul)
    before = server.url
    web.call("PUT", f"{server.url}/v1/kv/letter", "kept")
    assert server.restart().url == before
    assert web.get(f"{server.url}/v1/kv/letter?raw") == "kept"


def test_a_discarded_server_leaves_nothing_behind(start_server: StartsServer) -> None:
    server = start_server(Redis)
    pid = server.pid
    server.discard()
    assert not server.directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.servers
@pytest.mark.parametrize("kind", [Redis, RabbitMQ, OpenSearch])
def test_servers_die_with_a_parent_that_was_killed(kind: type) -> None:
    code = PARENT.format(module=kind.__module__.rpartition(".")[2], name=kind.__name__)
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        server, helper, abandoned = parent.stdout.readline().split()
        ended = [os.pidfd_open(int(pid)) for pid in (server, helper)]
        parent.kill()
    assert all(_has_ended(process) for process in ended)
    assert Path(abandoned).exists()
    subprocess.run([sys.executable, "-c", _IN_NEXT_RUN], cwd=REPOSITORY, check=True)
    assert not Path(abandoned).exists()


_IN_NEXT_RUN = "from tests.servers.rundirs import run_directory; run_directory()"


def test_another_run_leaves_the_directory_of_this_one_alone() -> None:
    subprocess.run([sys.executable, "-c", _IN_NEXT_RUN], cwd=REPOSITORY, check=True)
    assert run_directory().exists()


def test_a_directory_that_goes_while_another_run_looks_at_it_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "4711-gone").symlink_to(tmp_path / "nowhere")  # listed, and not there when it is opened
    elsewhere = {**os.environ, "REDRIVE_SERVERS_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _IN_NEXT_RUN], cwd=REPOSITORY, env=elsewhere, check=True)


def test_a_server_is_only_started_from_the_main_thread(start_server: StartsServer) -> None:
    with ThreadPoolExecutor() as threads, pytest.raises(RuntimeError, match="main thread"):
        threads.submit(start_server, Redis).result()


def test_a_server_that_is_not_installed_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REDRIVE_SERVERS_HOME", str(tmp_path))
    with pytest.raises(NotInstalled, match=r"consul-1\.21\.0 is missing or damaged; run make servers"):
        Consul(tmp_path).start()


def test_a_claimed_port_is_free_and_given_once() -> None:
    ports = {claim_port() for _ in range(50)}
    assert len(ports) == 50
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", ports.pop()))


def test_a_server_runs_in_the_foreground_until_it_is_interrupted(redis_server: Redis) -> None:
    command = [sys.executable, "-m", "tests.servers", "run", "redis"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline().startswith("redis url: redis://127.0.0.1:")
        runner.send_signal(signal.SIGINT)
        assert runner.wait(30) == 0


def _has_ended(process: int) -> bool:
    """Waits on the process's own descriptor, which becomes readable when it ends."""
    try:
        return bool(select.select([process], [], [], 30)[0])
    finally:
        os.close(process)
