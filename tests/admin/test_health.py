"""Probes, metrics, the OpenAPI document, and what surrounds every answer."""

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin import health
from redrive.admin.api import create_api
from redrive.errors import StoreUnavailable
from redrive.service import Service
from redrive.telemetry.events import MessageBuried
from tests.admin.asking import asking
from tests.admin.conftest import Client, Shop


async def away(*arguments: object, **options: object) -> None:
    raise StoreUnavailable("redrive.db", "the disk is full")


async def test_it_lives_whatever_its_store_does(client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop.app.store, "check", away)
    answer = await (await client(None)).get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


async def test_it_is_ready_when_store_and_transports_are(client: Client) -> None:
    answer = await (await client(Role.VIEWER)).get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "checks": {"store": "ok", "transports.default": "ok"}}


async def test_it_says_which_backend_is_not_ready_and_why(
    client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop.app.store, "check", away)
    answer = await (await client(Role.VIEWER)).get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {
        "store": "redrive.db is unavailable: the disk is full",
        "transports.default": "ok",
    }


async def test_a_backend_that_hangs_is_not_ready(client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop.app.store, "check", asyncio.Event().wait)
    monkeypatch.setattr(health, "_PATIENCE", 0.01)
    answer = await (await client(Role.VIEWER)).get("/readyz")
    assert answer.status_code == 503
    assert "no answer" in answer.json()["checks"]["store"]


async def test_the_doctor_is_asked_over_http(client: Client) -> None:
    answer = await (await client(Role.ADMIN)).get("/api/doctor")
    assert {one["about"]: one["level"] for one in answer.json()["findings"]}["store"] == "fine"


async def test_metrics_have_counters_and_what_the_store_holds(client: Client, shop: Shop) -> None:
    await shop.app.send("orders", {"id": 2})
    await shop.until(MessageBuried)
    await shop.app.send("orders", {"id": 4})
    answer = await (await client(Role.VIEWER)).get("/metrics")
    found = _samples(answer.text)
    assert found["redrive_letters", "orders", "pending"] == 1
    assert found["redrive_queue", "ready", "orders"] == 1
    assert found["redrive_letters_buried_total", "permanent", "permanent", "orders"] == 1
    assert found["redrive_stats_up",] == 1


async def test_a_scrape_is_answered_while_the_store_is_away(
    client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = await client(Role.VIEWER)
    monkeypatch.setattr(shop.app.store.letters, "tallies", away)
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert _samples(answer.text)["redrive_stats_up",] == 0


def _samples(text: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in families
        for sample in family.samples
    }


async def test_every_answer_is_safe_in_a_browser(client: Client) -> None:
    http = await client(Role.VIEWER)
    for path in ("/", "/console/groups", "/api/stats", "/api/nothing", "/healthz"):
        headers = (await http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8321", 200),
        ("localhost", 200),
        ("LocalHost:8321", 200),
        ("[::1]:8321", 200),
        ("evil.test", 421),
        ("127.0.0.1.evil.test", 421),
        ("localhost.evil.test:8321", 421),
        ("", 421),
        ("localhost:80:evil", 421),
        ("[::1]evil", 421),
        ("[::1", 421),
        ("127.0.0.1.evil", 421),
        ("user@localhost", 421),
        ("localhost:evil", 421),
        ("localhost, evil.test", 400),
    ],
)
async def test_on_loopback_another_name_is_refused(shop: Shop, host: str, status: int) -> None:
    api = create_api(Service(shop.app), loopback=True)
    async with asking(api) as http:
        answer = await http.get("/healthz", headers={"Host": host})
    assert answer.status_code == status


async def test_on_loopback_metrics_need_no_token(shop: Shop, tokens: Tokens) -> None:
    api = create_api(Service(shop.app), tokens=tokens, loopback=True)
    async with asking(api, host="localhost") as http:
        assert (await http.get("/metrics")).status_code == 200
        assert (await http.get("/api/stats")).status_code == 401


GO_ON_BEHIND = (("post", "/api/replays"), ("post", "/api/replays/{id}/resume"), ("post", "/api/replays/of-letters"))
"""What answers before it is done."""
MAKE = (("post", "/api/tokens"),)


async def test_the_openapi_document_is_whole(client: Client) -> None:
    document = (await (await client(None)).get("/openapi.json")).json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["x-role"], path
            assert ("security" in operation) is (operation["x-role"] != "anyone")
            ok = "202" if (method, path) in GO_ON_BEHIND else "201" if (method, path) in MAKE else "200"
            assert "schema" in next(iter(operation["responses"][ok]["content"].values())), path
    for reference in _references(document):
        node: Any = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    names = {one["name"] for one in document["paths"]["/api/letters"]["get"]["parameters"]}
    assert {"states", "sources", "text", "since", "after", "limit"} <= names
    assert "Detail" in document["components"]["schemas"]
    order = document["components"]["schemas"]["Order"]
    assert order["additionalProperties"] is False
    assert order["properties"]["rate"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0}
    assert not any("HTTPValidationError" in reference for reference in _references(document))


def _references(node: Any) -> set[str]:
    if isinstance(node, list):
        return {one for item in node for one in _references(item)}
    if not isinstance(node, dict):
        return set()
    return {one for item in node.values() for one in _references(item)} | ({node["$ref"]} if "$ref" in node else set())
