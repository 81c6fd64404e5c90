"""What happened over time, and the overview, as a page asks for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from litestar import Litestar

from redrive.access.actors import Role, Scope
from redrive.access.tokens import Tokens
from redrive.model import Category
from redrive.telemetry.events import LetterResolved
from redrive.testing.builders import make_letter, make_message
from redrive.testing.past import seed_past
from tests.admin.asking import asking
from tests.admin.conftest import Client, Shop


async def test_what_died_is_counted_by_outcome_source_and_category(
    shop: Shop, client: Client, buried: list[str]
) -> None:
    viewer = await client(Role.VIEWER)
    found = (await viewer.get("/api/series", params={"last": "1h"})).json()
    assert found["step"] == 60
    assert found["by"] == "outcome"
    assert len(found["at"]) in (61, 62)
    assert {line["name"]: line["total"] for line in found["lines"]} == {"buried": 4, "retried": 0, "resolved": 0}
    assert all(len(line["counts"]) == len(found["at"]) for line in found["lines"])
    by_source = (await viewer.get("/api/series", params={"by": "source", "last": "24h"})).json()
    assert by_source["step"] == 3600
    assert [(line["name"], line["total"]) for line in by_source["lines"]] == [("orders", 4)]
    narrowed = {"by": "category", "category": "permanent", "outcome": "buried"}
    [line] = (await viewer.get("/api/series", params=narrowed)).json()["lines"]
    assert (line["name"], line["total"]) == ("permanent", 2)


async def test_the_overview_tells_what_is_dying_and_what_came_of_it(
    shop: Shop, client: Client, buried: list[str]
) -> None:
    operator = await client(Role.OPERATOR)
    found = (await operator.get("/api/overview")).json()
    assert found["totals"]["buried"] == {"now": 4, "before": 0}
    assert found["waiting"] == 4
    assert found["oldest"]["source"] == "orders"
    assert found["retry_success"] is None
    assert [(sum(group["spark"]), len(group["spark"]), group["trend"]) for group in found["groups"]] == [
        (2, 24, "new"),
        (2, 24, "new"),
    ]
    assert {backend["name"]: backend["ok"] for backend in found["backends"]} == {
        "store": True,
        "transports.default": True,
    }
    shop.broken = False
    letters = (await operator.get("/api/letters")).json()["letters"]
    await operator.post("/api/letters/retry", json={"ids": [letters[0]["id"]]})
    await shop.until(LetterResolved)
    found = (await operator.get("/api/overview", params={"last": "1h"})).json()
    assert found["totals"]["resolved"]["now"] == 1
    assert found["retry_success"] == 1.0
    assert found["waiting"] == 3


async def test_a_past_is_compared_with_the_time_before(shop: Shop, client: Client) -> None:
    now = shop.app.clock.now()
    hours = [1, 2, 3, 30, 31]
    await seed_past(
        shop.app.store,
        [make_letter(at=now - timedelta(hours=n)) for n in hours],
        retried=[(now - timedelta(hours=40), "orders", Category.NETWORK, 9)],
    )
    viewer = await client(Role.VIEWER)
    totals = (await viewer.get("/api/overview", params={"last": "24h"})).json()["totals"]
    assert totals["buried"] == {"now": 3, "before": 2}
    assert totals["retried"] == {"now": 0, "before": 9}


@pytest.mark.parametrize("last", ["15m", "1h", "24h", "7d", "30d", "90d"])
async def test_the_totals_of_the_overview_are_those_of_the_chart_below(shop: Shop, client: Client, last: str) -> None:
    viewer = await client(Role.VIEWER)
    at = (await viewer.get("/api/series", params={"last": last})).json()["at"]
    died = [datetime.fromtimestamp(start, UTC) for start in (at[0] - 1, at[0], at[0] + 1, at[-1])]
    await seed_past(shop.app.store, [make_letter(at=moment) for moment in died])
    chart = (await viewer.get("/api/series", params={"last": last})).json()
    [buried] = [line for line in chart["lines"] if line["name"] == "buried"]
    totals = (await viewer.get("/api/overview", params={"last": last})).json()["totals"]
    assert totals["buried"]["now"] == buried["total"]
    if chart["at"] == at:  # no bucket has begun meanwhile
        assert totals["buried"] == {"now": 3, "before": 1}


async def test_a_backend_that_is_down_is_named_and_fails_nothing(
    shop: Shop, client: Client, buried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from redrive.errors import TransportUnavailable

    async def down() -> None:
        raise TransportUnavailable("default", "nobody is there")

    monkeypatch.setattr(shop.app.transport("default"), "check", down)
    found = (await (await client(Role.VIEWER)).get("/api/overview")).json()
    [silent] = [backend for backend in found["backends"] if not backend["ok"]]
    assert silent["name"] == "transports.default"
    assert "nobody is there" in silent["why"]
    assert found["totals"]["buried"]["now"] == 4


async def test_groups_have_a_sparkline_if_asked_and_are_sorted(shop: Shop, client: Client) -> None:
    now = shop.app.clock.now()
    ages = {"old": [50, 49, 48], "new": [1]}
    await seed_past(
        shop.app.store,
        [make_letter(at=now - timedelta(hours=n), group=group) for group, hours in ages.items() for n in hours],
    )
    viewer = await client(Role.VIEWER)
    plain = (await viewer.get("/api/groups")).json()
    assert [group["id"] for group in plain] == ["old", "new"]
    assert plain[0]["spark"] is None
    asked = {"spark": "24", "last": "24h", "sort": "last_seen"}
    new, old = (await viewer.get("/api/groups", params=asked)).json()
    assert (new["id"], sum(new["spark"]), new["trend"]) == ("new", 1, "new")
    assert (old["id"], sum(old["spark"]), old["trend"]) == ("old", 0, "quiet")


@pytest.mark.parametrize(
    "params",
    [
        {"last": "soon"},
        {"last": "0s"},
        {"last": "9999d"},
        {"step": "61"},
        {"last": "30d", "step": "60"},
        {"last": "1h", "since": "2026-01-01T00:00:00Z"},
        {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"since": "2026-01-01T00:00:00"},
        {"by": "group"},
        {"by": "tenant"},
        {"outcome": "lost"},
        {"category": "x"},
        {"sources": "x"},
    ],
)
async def test_what_makes_no_sense_is_refused_and_told(client: Client, params: dict[str, str]) -> None:
    answer = await (await client(Role.VIEWER)).get("/api/series", params=params)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["error"]


async def test_somebody_gets_the_counts_of_sources_that_they_reach_whole(
    shop: Shop, api: Litestar, tokens: Tokens
) -> None:
    names = ("mail.in", "mail.out", "vault")
    await seed_past(
        shop.app.store,
        [make_letter(make_message(source=name), at=shop.app.clock.now(), group="g") for name in names],
    )

    async def asked(scope: Scope, path: str, **params: Any) -> Any:
        _, text = await tokens.create(f"t{hash(scope)}{path}"[:40], Role.VIEWER, scope=scope)
        async with asking(api, text) as somebody:
            return (await somebody.get(path, params=params)).json()

    some = Scope(sources=("mail.*",))
    found = await asked(some, "/api/series", by="source")
    assert {line["name"]: line["total"] for line in found["lines"]} == {"mail.in": 1, "mail.out": 1}
    assert not (await asked(Scope(sources=("mail.*",)), "/api/series", by="source", source="vault"))["lines"]
    assert (await asked(some, "/api/overview"))["totals"]["buried"]["now"] == 2
    [group] = await asked(some, "/api/groups", spark=24)
    assert sum(group["spark"]) == 2
    of_a_tenant = await asked(Scope(tenants=("acme",)), "/api/series", by="source")
    assert of_a_tenant["lines"] == []
    assert "whole sources" in of_a_tenant["note"]
