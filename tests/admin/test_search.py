"""What a viewer may not see cannot be searched for, either."""

import string

from redrive.access.actors import Role
from redrive.telemetry.events import MessageBuried
from tests.admin.conftest import Client, Shop

_SECRET = "q7vz1kd0w9"
_ALPHABET = string.ascii_lowercase + string.digits


async def test_a_viewer_learns_no_secret_by_searching_for_its_parts(client: Client, shop: Shop) -> None:
    await shop.app.send("orders", {"id": 1, "city": "Porto", "password": _SECRET})
    await shop.until(MessageBuried)
    http = await client(Role.VIEWER)

    async def answers(text: str) -> tuple[int, int]:
        """What a list and the groups tell; only a plan could tell more, and it counts the same query."""
        letters = (await http.get("/api/letters", params={"text": text})).json()["letters"]
        groups = (await http.get("/api/groups", params={"text": text})).json()
        return len(letters), sum(group["count"] for group in groups)

    assert await answers("porto") == (1, 1)
    assert {await answers(f'password":"{letter}') for letter in _ALPHABET} == {(0, 0)}
    learnt = _SECRET[:3]  # were it known how it begins, the rest could be guessed letter by letter
    for known in range(3, len(_SECRET)):
        learnt = _SECRET[:known]
        assert {await answers(learnt + letter) for letter in _ALPHABET} == {(0, 0)}
        assert await answers(_SECRET[known - 3 : known + 1]) == (0, 0)
    plan = await (await client(Role.OPERATOR)).post("/api/replays/plan", json={"query": {"text": _SECRET}})
    assert plan.json().get("count", 0) == 0


async def test_a_right_guess_is_answered_as_a_wrong_one_is(client: Client, shop: Shop) -> None:
    """Every route that takes a text, as the API itself lists them: status, body and headers tell nothing of a guess."""
    await shop.app.send("orders", {"id": 1, "password": _SECRET})
    await shop.until(MessageBuried)
    http = await client(Role.VIEWER)
    routes = (await http.get("/openapi.json")).json()["paths"]
    asked = [
        path
        for path, ways in routes.items()
        if any(parameter["name"] == "text" for parameter in ways.get("get", {}).get("parameters", ()))
    ]
    assert {"/api/letters", "/api/groups"} <= set(asked)
    right, wrong = f'password":"{_SECRET[:4]}', f'password":"{_SECRET[:3]}x'
    for path in asked:
        for more in ({}, {"limit": "1"}, {"oldest_first": "true"}, {"after": "nonsense"}, {"sources": "orders"}):
            told = []
            for text in (right, wrong):
                answer = await http.get(path, params={"text": text, **more})
                body = answer.text.replace(text, "?").replace(text.replace('"', '\\"'), "?")
                told.append((answer.status_code, body, answer.headers.get("content-length")))
            assert told[0] == told[1], (path, more)


async def test_a_list_without_an_end_is_refused(client: Client) -> None:
    http = await client(Role.OPERATOR)
    many = [f"m{n}" for n in range(1001)]
    for path, body in (
        ("/api/replays/plan", {"query": {"message_ids": many}}),
        ("/api/letters/archive", {"query": {"ids": many}}),
    ):
        refused = await http.post(path, json=body)
        assert refused.status_code == 422, path
        assert "at most 1,000" in refused.text
    theirs = await http.post("/api/letters/archive", json={"query": {"scope": {"sources": ["*"]}}})
    assert theirs.status_code == 422
    assert (await http.get("/api/letters", params={"scope": "*"})).status_code == 422
