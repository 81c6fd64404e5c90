"""Checks a store that is a cluster: may a node die, and is there space on its disks?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from redrive.app import Redrive
from redrive.doctor.findings import Finding, failure, fine, warning
from redrive.errors import StoreUnavailable
from redrive.stores.base import Cluster, ClusterHealth, MadeLater, Store

_WATERMARK = 85.0  # percent: beyond it OpenSearch moves nothing more to a node; at 95 it refuses writes


async def is_made(store: Store) -> bool:
    """Whether the store exists: looking into one that does not would make it."""
    return not isinstance(store, MadeLater) or await store.is_made()


async def cluster(app: Redrive, store: Store) -> AsyncIterator[Finding]:
    """Check the cluster of a store; nothing for a store that is none."""
    if not isinstance(store, Cluster):
        return
    try:
        health = await store.health()
    except StoreUnavailable as error:
        yield warning("store", f"how its cluster is cannot be told: {error.why}", "may our user ask? cluster:monitor")
        return
    yield _status(health)
    if health.disk_used is not None and health.disk_used >= _WATERMARK:
        yield warning(
            "store",
            f"a disk of the cluster is {health.disk_used:g} % full; at 95 % it refuses every write",
            "make room on its nodes, or set `retention.ttl` or `retention.max_letters`",
        )


def _status(health: ClusterHealth) -> Finding:
    if health.status == "red":
        return failure(
            "store",
            f"the cluster is red: {health.unassigned} shards are on no node, and what is in them cannot be read",
            "start the nodes that are missing; GET /_cluster/allocation/explain says why a shard has no place",
        )
    if health.status == "yellow":
        return warning(
            "store",
            f"the cluster is yellow: {health.unassigned} copies are on no node: if a node dies, letters may be lost",
            "start another node; if there is to be one only, set the index's number_of_replicas to 0",
        )
    return fine("store", f"the cluster is {health.status}, with {health.nodes} data node{'s' * (health.nodes != 1)}")
