"""A Redis Cluster of three primaries, each a server of its own."""

import socket
from collections.abc import Mapping
from typing import Self

from tests.servers.base import Lifecycle
from tests.servers.needs import Needs
from tests.servers.ports import LOOPBACK, claim_port
from tests.servers.redis import Redis
from tests.servers.waiting import wait_until

SLOTS = 16384


class RedisCluster(Lifecycle):
    """Every slot is served when it is started; there are no replicas."""

    name = "redis"
    needs = Needs(packages=("redis-server",))

    def __init__(self, size: int = 3) -> None:
        self.nodes = [_node() for _ in range(size)]

    @property
    def url(self) -> str:
        return f"redis+cluster://{self.nodes[0].address}"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"url": self.url}

    def start(self) -> Self:
        for node in self.nodes:
            node.start()
        self._share_out()
        wait_until(lambda: all(map(_is_whole, self.nodes)), "a Redis Cluster")
        return self

    def require_running(self) -> None:
        for node in self.nodes:
            node.require_running()

    def discard(self) -> None:
        for node in self.nodes:
            node.discard()

    def _share_out(self) -> None:
        """Each node has as many slots as any other, and knows of all of them by the first."""
        share = SLOTS // len(self.nodes)
        for number, node in enumerate(self.nodes):
            last = SLOTS - 1 if node is self.nodes[-1] else (number + 1) * share - 1
            _ask(node, f"CLUSTER ADDSLOTSRANGE {number * share} {last}")
            _ask(node, f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
        first, *others = self.nodes
        for node in others:
            _ask(node, f"CLUSTER MEET {LOOPBACK} {first.port} {_bus(first)}")


def _node() -> Redis:
    lines = ["cluster-enabled yes", f"cluster-port {claim_port()}", "cluster-node-timeout 5000"]
    return Redis(lines=lines)


def _is_whole(node: Redis) -> bool:
    return "cluster_state:ok" in _ask(node, "CLUSTER INFO")


def _bus(node: Redis) -> int:
    return int(next(line for line in node.lines if line.startswith("cluster-port")).split()[1])


def _ask(node: Redis, command: str) -> str:
    """What the node answers, up to its last line."""
    with socket.create_connection((LOOPBACK, node.port), timeout=5) as connection:
        connection.sendall(f"{command}\r\n".encode())
        answer = connection.recv(1 << 16).decode()
    assert not answer.startswith("-"), f"{command}: {answer}"
    return answer
