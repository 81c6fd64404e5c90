"""The graph: which node is which module, and where a stream goes from it. From YAML, or made in Python."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct, field

from redrive.config.durations import duration
from redrive.errors import ConfigError, MissingExtra, NotFound, nearest
from redrive.flow.backoff import linear
from redrive.model import Category
from redrive.policy import Policy
from redrive.systems.pipeline.pipeline_pb2 import DlqConfig
from redrive.transports.kafka.options import topic_named
from redrive.untrusted import UNREADABLE, checked_tree

RETRIES = 3
"""Where a node says nothing else: the contract's default."""
BACKOFF = timedelta(seconds=1)
LEAST_PATIENCE = timedelta(minutes=1)
"""How long a stream is held back at least while its module cannot be called, where its node says nothing else."""
_LONGEST_ATTEMPT = timedelta(hours=1)  # the call has its own deadline; the rest of an attempt waits for Kafka
log = logging.getLogger("redrive.pipeline")


class UnknownNode(NotFound):
    """There is no such node of the graph."""

    def __init__(self, node: str, known: Iterable[str]) -> None:
        super().__init__(f"the graph has no node {node!r}{nearest(node, known)}")


class Node(Struct, frozen=True, kw_only=True):
    """One place in the graph: a stream that comes to it is given to an instance of its module."""

    id: str
    module: str
    next: tuple[str, ...] = ()
    name: str = ""
    timeout: timedelta = timedelta(seconds=30)
    max_hops: int = 50
    dlq_config: DlqConfig = field(default_factory=DlqConfig)
    kafka_input_topic: str | None = None  # what it reads; None: `{cluster}.{id}`
    patience: timedelta | None = None  # how long the breaker of its module may hold a stream back; None: see `held_for`

    @property
    def label(self) -> str:
        return self.name or self.module

    @property
    def has_dlq(self) -> bool:
        config = self.dlq_config
        return config.enabled if config.HasField("enabled") else True

    @property
    def backoff(self) -> timedelta:
        config = self.dlq_config
        return config.retry_backoff.ToTimedelta() if config.HasField("retry_backoff") else BACKOFF

    @property
    def held_for(self) -> timedelta:
        """How long a stream is held back while its module cannot be called: its patience; or else as long as all its
        attempts would take, were each of them made and timed out, and a minute at least."""
        if self.patience is not None:
            return self.patience
        attempts = self.dlq_config.max_retries or RETRIES
        return max(LEAST_PATIENCE, attempts * self.timeout + self.backoff * (attempts * (attempts - 1) // 2))

    @property
    def policy(self) -> Policy:
        """Its DlqConfig: so many attempts, with `retry_backoff * attempt` between them and none after the last."""
        again = Policy(attempts=self.dlq_config.max_retries or RETRIES, backoff=linear(self.backoff))
        once = Policy(attempts=1)
        final: dict[Category | str, Policy] = dict.fromkeys(
            (Category.VALIDATION, Category.PERMANENT, Category.PERMISSION), once
        )
        return Policy(again.attempts, again.backoff, timeout=_LONGEST_ATTEMPT, categories=final)


GraphNode = Node
"""Its name in the document."""


class Graph:
    """Nodes and the ways between them, checked when it is made.

    cluster    the first part of every topic's name
    modules    addresses of modules that Consul is not asked for
    finished   the topic that streams come to when no node follows; None drops them
    """

    def __init__(
        self,
        cluster: str,
        nodes: Sequence[Node],
        *,
        modules: Mapping[str, Sequence[str]] | None = None,
        finished: str | None = "",
    ) -> None:
        self.cluster = topic_named(cluster)
        self.nodes = {node.id: node for node in nodes}
        self.modules = {name: tuple(addresses) for name, addresses in (modules or {}).items()}
        self.finished = f"{cluster}.finished" if finished == "" else finished
        self._check(nodes)
        self._by_topic = {self.topic(node): node for node in nodes}
        self.cycle = self._cycle()
        if self.cycle:
            way = " → ".join(self.nodes[id].label for id in self.cycle)
            log.warning("the graph has a cycle: %s. A stream that does not leave it ends in the DLQ (MAX_HOPS)", way)

    def node(self, id: str) -> Node:
        """The node of that id, or of that name where only one node has it."""
        found = self.nodes.get(id)
        if found is not None:
            return found
        named = [node for node in self.nodes.values() if node.name == id]
        if len(named) == 1:
            return named[0]
        raise UnknownNode(id, [*self.nodes, *(node.name for node in self.nodes.values() if node.name)])

    def topic(self, node: Node) -> str:
        """The topic a node reads."""
        return node.kafka_input_topic or f"{self.cluster}.{node.id}"

    def dlq_topic(self, node: Node) -> str:
        """The topic of its dead streams."""
        return node.dlq_config.topic or f"dlq.{self.cluster}.{node.id}"

    def node_of(self, topic: str) -> Node | None:
        """The node that reads that topic."""
        return self._by_topic.get(topic)

    @property
    def entries(self) -> list[Node]:
        """The nodes that no other node leads to."""
        led_to = {id for node in self.nodes.values() for id in node.next}
        return [node for node in self.nodes.values() if node.id not in led_to]

    @property
    def topics(self) -> list[str]:
        """Everything that has to exist on Kafka."""
        nodes = self.nodes.values()
        dead = [self.dlq_topic(node) for node in nodes if node.has_dlq]
        return list(dict.fromkeys([*map(self.topic, nodes), *dead, *([self.finished] if self.finished else [])]))

    def _check(self, nodes: Sequence[Node]) -> None:
        if not nodes:
            raise ConfigError("the graph has no nodes")
        if len(self.nodes) < len(nodes):
            twice = next(node.id for node in nodes if sum(other.id == node.id for other in nodes) > 1)
            raise ConfigError(f"the graph has two nodes {twice}: an id is a node's own")
        inputs = {topic_named(self.topic(node)) for node in nodes}
        if len(inputs) < len(nodes):
            raise ConfigError("the graph has two nodes that read one topic: `kafka_input_topic` is a node's own")
        if self.finished in inputs:
            raise ConfigError(f"a node reads {self.finished!r}, which streams come to when no node follows")
        for node in nodes:
            self._check_node(node, inputs)

    def _check_node(self, node: Node, inputs: set[str]) -> None:
        try:
            UUID(node.id)
        except ValueError:
            raise ConfigError(
                f"node {node.id!r}: its id is no UUID; `python -c 'import uuid; print(uuid.uuid4())'` makes one"
            ) from None
        if not node.module:
            raise ConfigError(f"node {node.id}: it names no module")
        for id in node.next:
            if id not in self.nodes:
                raise ConfigError(
                    f"node {node.id}: it leads to {id!r}, which is no node of the graph{nearest(id, self.nodes)}"
                )
        if node.timeout <= timedelta():
            raise ConfigError(f"node {node.id}: timeout has to be longer than nothing")
        if node.patience is not None and node.patience < timedelta():
            raise ConfigError(f"node {node.id}: patience cannot be shorter than nothing; 0s holds no stream back")
        if node.max_hops < 1:
            raise ConfigError(f"node {node.id}: max_hops={node.max_hops}: at least 1, or no stream gets through")
        if node.dlq_config.max_retries < 0:
            raise ConfigError(
                f"node {node.id}: max_retries={node.dlq_config.max_retries}: at least one attempt is made"
            )
        if topic_named(self.dlq_topic(node)) in {*inputs, self.finished}:
            raise ConfigError(f"node {node.id}: its DLQ topic is {self.dlq_topic(node)!r}, which streams travel on")

    def _cycle(self) -> tuple[str, ...]:
        """Ids of a path that comes back to where it began; empty if there is none."""
        done: set[str] = set()
        for start in self.nodes:
            way: list[str] = []
            ahead: list[Iterator[str]] = [iter([start])]
            while ahead:
                id = next((following for following in ahead[-1] if following not in done), None)
                if id is None:
                    ahead.pop()
                    if way:
                        done.add(way.pop())
                elif id in way:
                    return (*way[way.index(id) :], id)
                else:
                    way.append(id)
                    ahead.append(iter(self.nodes[id].next))
        return ()

    @classmethod
    def load(cls, path: Path | str) -> Graph:
        """From a YAML file."""
        try:
            import yaml
        except ImportError as error:
            raise MissingExtra("a graph in YAML", "yaml") from error
        try:
            found = checked_tree(yaml.safe_load(Path(path).read_text()))
        except (OSError, yaml.YAMLError, *UNREADABLE) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
        try:
            return cls.of(found)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    @classmethod
    def of(cls, given: Any) -> Graph:
        """From plain data, as YAML has it."""
        try:
            read = msgspec.convert(given, _Graph)
        except UNREADABLE as error:
            raise ConfigError(f"the graph cannot be used: {error}") from error
        nodes = [_node(given, read.max_hops) for given in read.nodes]
        return cls(read.cluster, nodes, modules=read.modules, finished=read.finished)


class _Config(Struct, forbid_unknown_fields=True):
    enabled: bool = True
    topic: str | None = None
    max_retries: int = RETRIES
    retry_backoff: str = "1s"


class _Node(Struct, forbid_unknown_fields=True):
    id: str
    module: str
    next: list[str] = []
    name: str = ""
    timeout: str = "30s"
    max_hops: int | None = None
    kafka_input_topic: str | None = None
    patience: str | None = None
    dlq_config: _Config = field(default_factory=_Config)


class _Graph(Struct, forbid_unknown_fields=True):
    cluster: str
    nodes: list[_Node]
    modules: dict[str, list[str]] = {}
    finished: str | None = ""
    max_hops: int = 50


def _node(given: _Node, max_hops: int) -> Node:
    said = given.dlq_config
    if said.max_retries < 1:
        raise ConfigError(f"node {given.id}: max_retries={said.max_retries}: at least one attempt is made")
    config = DlqConfig(enabled=said.enabled, topic=said.topic, max_retries=said.max_retries)
    try:
        config.retry_backoff.FromTimedelta(duration(said.retry_backoff))
        timeout = duration(given.timeout)
        patience = None if given.patience is None else duration(given.patience)
    except ConfigError as error:
        raise ConfigError(f"node {given.id}: {error}") from error
    return Node(
        id=given.id,
        module=given.module,
        next=tuple(given.next),
        name=given.name,
        timeout=timeout,
        max_hops=max_hops if given.max_hops is None else given.max_hops,
        dlq_config=config,
        kafka_input_topic=given.kafka_input_topic,
        patience=patience,
    )
