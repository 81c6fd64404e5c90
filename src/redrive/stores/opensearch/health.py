"""The health of the cluster, for `redrive doctor`."""

from __future__ import annotations

from msgspec import Struct

from redrive.errors import StoreUnavailable
from redrive.stores.opensearch.access import Access
from redrive.stores.opensearch.schema import Schema


class Health(Struct, frozen=True, kw_only=True):
    """What an operator of the cluster would look at first."""

    status: str  # green, yellow (a copy is missing) or red (letters are missing)
    unassigned: int  # shards that no node has
    nodes: int
    disk_used: float | None  # of the fullest node, in percent; None: we may not know


async def health_of(access: Access, schema: Schema) -> Health:
    """The health of the store's indexes, or of the cluster where there are none yet."""
    indexes = ",".join(schema.all) if await schema.exists() else ""
    answer = await access.request("GET", f"/_cluster/health/{indexes}".rstrip("/"))
    return Health(
        status=answer["status"],
        unassigned=answer["unassigned_shards"],
        nodes=answer["number_of_data_nodes"],
        disk_used=await _disk_used(access),
    )


async def _disk_used(access: Access) -> float | None:
    """The share of disk that is used; None if our user may not ask, which is fine."""
    try:
        answer = await access.request("GET", "/_nodes/stats/fs", params={"filter_path": "nodes.*.fs.total"})
    except StoreUnavailable:
        return None
    totals = [node["fs"]["total"] for node in answer.get("nodes", {}).values() if "fs" in node]
    used = [1 - disk["available_in_bytes"] / disk["total_in_bytes"] for disk in totals if disk.get("total_in_bytes")]
    return round(max(used) * 100, 1) if used else None
