"""Groups through the API: versions, fixes, mutes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from redrive.access.actors import Role
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.admin.conftest import SECRET, Client, Shop


@pytest.fixture
async def operator(client: Client, shop: Shop) -> httpx.AsyncClient:
    """Of a shop with one letter."""
    failure = make_failure(version="1.4.1")
    await shop.app.store.letters.record([make_letter(make_message(id="m1"), failure)])
    return await client(Role.OPERATOR)


async def one(operator: httpx.AsyncClient) -> Any:
    [group] = (await operator.get("/api/groups")).json()
    return group


async def test_a_group_says_the_versions_it_was_seen_in_and_that_it_is_open(operator: httpx.AsyncClient) -> None:
    group = await one(operator)
    assert (group["first_version"], group["last_version"], group["state"]) == ("1.4.1", "1.4.1", "open")
    letters = (await operator.get("/api/letters")).json()["letters"]
    detail = (await operator.get(f"/api/letters/{letters[0]['id']}")).json()
    assert {failure["version"] for failure in detail["failures"]} == {"1.4.1"}


async def test_a_group_is_fixed_and_that_is_undone(operator: httpx.AsyncClient, client: Client) -> None:
    id = (await one(operator))["id"]
    report = (
        await operator.post(f"/api/groups/{id[:6]}/fix", json={"version": "1.4.2", "why": f"see {SECRET}"})
    ).json()
    assert (report["group"]["state"], report["group"]["waits_for"]) == ("fixed", ["orders has no worker"])
    assert "hunter2" not in str(report)
    assert (await operator.get(f"/api/groups/{id}")).json()["fix"]["version"] == "1.4.2"
    assert (await operator.post(f"/api/groups/{id}/unfix")).json()["state"] == "open"
    assert (await operator.post(f"/api/groups/{id}/unfix")).status_code == 400
    trail = (await (await client(Role.ADMIN)).get("/api/audit")).json()
    told = [(line["action"], line["outcome"]) for line in trail]
    assert told == [("unfix", "refused"), ("unfix", "done"), ("fix", "done")]


async def test_a_muted_group_is_listed_apart(operator: httpx.AsyncClient) -> None:
    id = (await one(operator))["id"]
    muted = (await operator.post(f"/api/groups/{id}/mute", json={"seconds": 3600, "why": "we know"})).json()
    assert (muted["state"], muted["mute"]["why"]) == ("muted", "we know")
    assert (await operator.get("/api/groups")).json() == []
    assert [group["id"] for group in (await operator.get("/api/groups", params={"with_muted": "true"})).json()] == [id]
    assert [group["id"] for group in (await operator.get("/api/groups", params={"groups": id})).json()] == [id]
    assert [mark["group"] for mark in (await operator.get("/api/muted-groups")).json()] == [id]
    assert (await operator.post(f"/api/groups/{id}/unmute")).json()["group"]["state"] == "open"
    assert (await operator.post(f"/api/groups/{id}/unmute")).json() == {"group": None}
    assert (await operator.get("/api/muted-groups")).json() == []


async def test_groups_are_paged_and_say_in_one_word_how_they_stand(shop: Shop, client: Client) -> None:
    now, operator = shop.app.clock.now(), await client(Role.OPERATOR)
    ages = {"a": [50, 49, 48], "b": [30, 1], "c": [2]}
    await shop.app.store.letters.record(
        [
            make_letter(make_message(tenant=tenant), make_failure(at=at), at=at, group=group)
            for group, hours in ages.items()
            for at, tenant in ((now - timedelta(hours=n), f"t{n}") for n in hours)
        ]
    )

    async def page(**params: Any) -> list[tuple[str, str]]:
        found = (await operator.get("/api/groups", params=params)).json()
        return [(group["id"], group["standing"]) for group in found]

    assert await page(limit=2) == [("a", "quiet"), ("b", "steady")]
    assert await page(limit=2, skip=2) == [("c", "new")]
    assert await page(limit=2, sort="last_seen") == [("b", "steady"), ("c", "new")]
    assert await page(last="1h", spark=4, limit=1, sort="first_seen") == [("c", "new")]  # whatever time it shows
    await operator.post("/api/groups/a/mute", json={"seconds": 3600, "why": "we know"})
    assert await page(limit=1) == [("b", "steady")]
    assert await page(limit=1, skip=1) == [("c", "new")]
    assert await page(limit=1, with_muted="true") == [("a", "muted")]
    assert (await operator.get("/api/groups/b")).json()["tenants"] == ["t1", "t30"]
    assert (await operator.get("/api/groups", params={"skip": 10_001})).status_code == 422


@pytest.mark.parametrize(
    ("route", "body", "status"),
    [
        ("fix", {"version": "two words"}, 400),
        ("fix", {"version": ""}, 400),
        ("fix", {}, 422),
        ("fix", {"version": "1", "in": "1"}, 422),
        ("mute", {"seconds": 0, "why": "x"}, 422),
        ("mute", {"seconds": 60}, 422),
        ("mute", {"seconds": 60, "why": ""}, 400),
        ("mute", {"seconds": 60, "why": "  "}, 400),
    ],
)
async def test_what_cannot_be_said_of_a_group_is_refused(
    operator: httpx.AsyncClient, route: str, body: dict[str, Any], status: int
) -> None:
    id = (await one(operator))["id"]
    assert (await operator.post(f"/api/groups/{id}/{route}", json=body)).status_code == status


async def test_an_unknown_group_is_not_found_and_a_viewer_may_only_look(
    operator: httpx.AsyncClient, client: Client
) -> None:
    assert (await operator.post("/api/groups/nope/fix", json={"version": "1"})).status_code == 404
    assert (await operator.get("/api/groups/nope")).status_code == 404
    viewer, id = await client(Role.VIEWER), (await one(operator))["id"]
    assert (await viewer.get(f"/api/groups/{id}")).status_code == 200
    for route in ("fix", "unfix", "mute", "unmute"):
        assert (await viewer.post(f"/api/groups/{id}/{route}", json={})).status_code == 403
