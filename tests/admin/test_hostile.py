"""Whatever is asked, the answer is an answer: never a bug of ours."""

from urllib.parse import quote

import msgspec
import pytest

from redrive.access.actors import Role
from redrive.forensics.query import Query
from redrive.telemetry.events import MessageBuried
from tests.admin.conftest import Client, Shop

_NASTY = (
    "",
    "0",
    "-1",
    "9" * 30,
    "9" * 5000,
    "1.1",
    "²",
    "null",
    "\x00",
    "é",
    "'; DROP TABLE letters;--",
    "%ff",
    "a" * 5000,
)
_TIMES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
_VALUES: tuple[object, ...] = (None, True, -1, 1e308, 10**30, "\x00", [], {}, [None], ["\x00"], [[]], *_NASTY, *_TIMES)


@pytest.mark.parametrize("name", [*Query.__struct_fields__, "after", "limit"])
async def test_any_value_of_any_parameter(client: Client, shop: Shop, name: str) -> None:
    await shop.app.send("orders", {"id": 1})
    await shop.until(MessageBuried)
    http = await client(Role.OPERATOR)
    for value in (*_NASTY, *_TIMES):
        for path in ("/api/letters", "/api/groups"):
            answer = await http.get(path, params={name: value})
            assert answer.status_code in (200, 400, 422), (path, name, value, answer.text)
    for body in _VALUES:
        data = msgspec.json.encode({"query": {name: body}})
        answer = await http.post("/api/replays/plan", content=data)
        assert answer.status_code in (200, 400, 422), (name, body, answer.text)


@pytest.mark.parametrize("value", _NASTY)
async def test_any_id(client: Client, value: str) -> None:
    http = await client(Role.OPERATOR)
    for method, path in (
        ("GET", "/api/letters/{}"),
        ("GET", "/api/replays/{}"),
        ("GET", "/api/replays/{}/entries"),
        ("POST", "/api/replays/{}/cancel"),
    ):
        answer = await http.request(method, path.format(quote(value, safe="")))
        assert answer.status_code < 500, (path, value, answer.text)
    for path in ("/api/replays", "/api/letters/retry", "/api/letters/archive"):
        for body in ({"ids": [value]}, {"query": {}, "id": value}, [value], value):
            answer = await http.post(path, json=body)
            assert answer.status_code < 500, (path, body, answer.text)


async def test_a_ledgers_cursor_is_not_believed(client: Client) -> None:
    http = await client(Role.OPERATOR)
    id = (await http.post("/api/replays", json={"query": {}, "all": True})).json()["id"]
    for value in _NASTY:
        answer = await http.get(f"/api/replays/{id}/entries", params={"after": value})
        assert answer.status_code in (200, 422), (value, answer.text)
