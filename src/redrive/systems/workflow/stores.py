"""`workflow+opensearch://host:9200`: the index of the workflow system, for the CLI, the console and replays."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from redrive.stores.opensearch import OpenSearchStore
from redrive.stores.opensearch.address import connected
from redrive.systems.workflow.shape import INDEX, WORKFLOW


def open_store(url: str) -> OpenSearchStore:
    """As `opensearch://`, but for the shape of the documents, and for the index that is meant if none is named."""
    parts = urlsplit(url.removeprefix("workflow+"))
    if not parts.path.strip("/"):
        parts = parts._replace(path=f"/{INDEX}")
    client, index, options = connected(urlunsplit(parts))
    return OpenSearchStore(
        client,
        index=index,
        shape=WORKFLOW,
        owned=True,
        shards=options.shards,
        replicas=options.replicas,
        timeout=options.timeout,
    )
