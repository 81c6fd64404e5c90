"""Every error is JSON with what went wrong and what to do, and a status to act on."""

import pytest

from redrive.access.actors import Role
from redrive.errors import StoreUnavailable
from tests.admin.conftest import Client, Shop


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/letters/nothing", 404, "no letter 'nothing'"),
        ("/api/replays/nothing", 404, "no replay 'nothing'"),
        ("/api/replays/nothing/entries", 404, "no replay 'nothing'"),
        ("/api/leters", 404, "there is no /api/leters"),
        ("/docs/nothing", 404, "there is no /docs/nothing"),
        ("/assets/0/..%2fadmin%2faccess.py", 404, "there is no"),
        ("/api/letters?stats=pending", 422, "unknown parameter 'stats': did you mean 'states'?"),
        ("/api/stats?x=1", 422, "unknown parameter 'x'"),
        ("/api/letters?states=dead", 422, "states"),
        ("/api/letters?limit=0", 422, "limit"),
        ("/api/letters?limit=many", 422, "limit"),
        ("/api/letters?limit=1&limit=2", 422, "limit is given 2 times"),
        ("/api/letters?since=yesterday", 422, "since"),
        ("/api/letters?since=2026-01-01T00:00:00", 422, "since has no time zone"),
        ("/api/letters?sources=order", 422, "unknown source 'order': did you mean 'orders'?"),
        ("/api/letters?after=nonsense", 422, "not a cursor"),
        ("/api/letters?after=99999999999999999999.1", 422, "not a cursor"),
    ],
)
async def test_what_is_asked_wrongly_is_named(client: Client, path: str, status: int, says: str) -> None:
    answer = await (await client(Role.VIEWER)).get(path)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["error"]
    assert answer.json()["hint"]


async def test_choices_are_listed(client: Client) -> None:
    answer = await (await client(Role.VIEWER)).get("/api/letters?states=dead")
    assert answer.json()["hint"] == "one of archived, exhausted, pending, replaying, resolved, retrying, sent"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b'{"ids": ["\xff"]}', 400, "not JSON"),
        (b'{"ids": []}', 422, "ids"),
        (b'{"ids": [7]}', 422, "ids[0]"),
        (b'{"ids": ["nothing"]}', 404, "no letter 'nothing'"),
        (b'{"ids": ["' + b"x" * (1 << 20) + b'"]}', 413, "more than"),
    ],
)
async def test_bodies_that_cannot_be_read(client: Client, body: bytes, status: int, says: str) -> None:
    answer = await (await client(Role.OPERATOR)).post("/api/letters/retry", content=body)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"query": {}, "rate": "50"}', "rate: Expected `float | null`, got `str`"),
        (b'{"query": {"scheduled": "true"}}', "query.scheduled: Expected `bool | null`, got `str`"),
        (b'{"query": {"since": "2026-01-01T00:00:00"}}', "since has no time zone"),
        (b'{"query": {"source": ["orders"]}}', "did you mean 'sources'?"),
    ],
)
async def test_a_body_is_read_to_the_letter(client: Client, body: bytes, says: str) -> None:
    answer = await (await client(Role.OPERATOR)).post("/api/replays", content=body)
    assert answer.status_code == 422, answer.text
    assert says in answer.json()["error"]


async def test_a_parameter_that_a_post_does_not_take_is_named(client: Client) -> None:
    answer = await (await client(Role.OPERATOR)).post("/api/replays/plan?dry_run=1", json={"query": {}})
    assert answer.status_code == 422
    assert answer.json()["error"] == "unknown parameter 'dry_run'"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
async def test_nothing_answers_on_its_own(client: Client, method: str) -> None:
    answer = await (await client(None)).request(method, "/api/replays")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "POST"}


async def test_another_method_is_not_offered(client: Client) -> None:
    answer = await (await client(Role.VIEWER)).delete("/api/letters")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"
    assert answer.json()["error"] == "DELETE /api/letters is not offered"


async def test_a_store_that_is_away_is_a_503_that_says_when_to_come_back(
    client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*arguments: object, **options: object) -> None:
        raise StoreUnavailable("db", "cannot reach postgres://me:hunter2@db")

    http = await client(Role.VIEWER)
    monkeypatch.setattr(shop.app.store.letters, "search", away)
    answer = await http.get("/api/letters")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "hunter2" not in answer.text


async def test_a_bug_of_ours_shows_nothing_of_itself(
    client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("hunter2")

    http = await client(Role.VIEWER)
    monkeypatch.setattr(shop.app.store.letters, "search", broken)
    answer = await http.get("/api/letters")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert "bug" in answer.json()["error"]
    assert answer.headers["x-content-type-options"] == "nosniff"
