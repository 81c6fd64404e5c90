"""Editing, undoing and unarchiving over HTTP."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from typing import Any

import pytest

from redrive.access.actors import Role
from redrive.model import Letter, State
from redrive.service.edits import Edits
from redrive.testing.builders import make_letter, make_message
from tests.admin.conftest import Client, Shop

BODY = b'{"id":7,"password":"hunter2","note":""}'


@pytest.fixture
async def letter(shop: Shop) -> Letter:
    message = make_message(source="orders", body=BODY, headers=(("authorization", b"Bearer abcdefgh12"), ("a", b"1")))
    made = make_letter(message)
    await shop.app.store.letters.record([made])
    return made


async def body_of(shop: Shop, letter: Letter) -> bytes:
    found = await shop.app.store.letters.get(letter.id)
    assert found is not None
    return found.message.body


async def test_a_patch_changes_what_it_names_and_leaves_secrets_alone(
    client: Client, shop: Shop, letter: Letter
) -> None:
    http = await client(Role.OPERATOR)
    patch = [{"op": "replace", "path": "/id", "value": 8}]
    answer = await http.post(f"/api/letters/{letter.id}/edit", json={"version": 0, "patch": patch, "reason": "typo"})
    assert answer.status_code == 200
    assert (answer.json()["version"], len(answer.json()["versions"])) == (1, 2)
    assert "hunter2" not in answer.text
    assert await body_of(shop, letter) == BODY.replace(b"7", b"8")
    undone = await http.post(f"/api/letters/{letter.id}/undo", json={"version": 1})
    assert undone.json()["version"] == 2
    assert await body_of(shop, letter) == BODY


async def test_a_large_body_is_patched_beside_the_event_loop(
    client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = make_letter(make_message(source="emails", body=json.dumps({"id": 7, "note": "a" * 100_000}).encode()))
    await shop.app.store.letters.record([large])
    real, threads = Edits.patched, list[threading.Thread]()

    def patched(*arguments: Any) -> bytes:
        threads.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(Edits, "patched", patched)
    patch = [{"op": "replace", "path": "/id", "value": 8}]
    http = await client(Role.OPERATOR)
    answer = await http.post(f"/api/letters/{large.id}/preview", json={"version": 0, "patch": patch})
    assert any('"id": 8' in line for line in answer.json()["diff"])
    assert threads
    assert threading.main_thread() not in threads


async def test_a_body_and_headers_are_replaced(client: Client, shop: Shop, letter: Letter) -> None:
    http = await client(Role.OPERATOR)
    raw = b64encode(b'{"id": "\xc3\x9f"}').decode()
    change = {"version": 0, "body_base64": raw, "headers": {"a": None, "b": "2"}}
    assert (await http.post(f"/api/letters/{letter.id}/edit", json=change)).status_code == 200
    found = await shop.app.store.letters.get(letter.id)
    assert found is not None
    assert found.message.body == b'{"id": "\xc3\x9f"}'
    assert found.message.headers == (("authorization", b"Bearer abcdefgh12"), ("b", b"2"))


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"version": 0, "body": '{"password":"[redacted]"}'}, 400, "what you were shown"),
        ({"version": 0, "headers": {"authorization": "[redacted]"}}, 400, "what you were shown"),
        ({"version": 0, "patch": [{"op": "copy", "from": "/password", "path": "/note"}]}, 400, "masked for you"),
        ({"version": 0, "patch": [{"op": "test", "path": "/password", "value": "hunter2"}]}, 400, "masked for you"),
        ({"version": 3, "body": "{}"}, 409, "edited meanwhile"),
        ({"version": 0}, 422, "say what is to change"),
        ({"version": 0, "body": "{}", "patch": [{"op": "remove", "path": "/id"}]}, 422, "say what is to change"),
        ({"version": 0, "body_base64": "§"}, 422, "body_base64"),
        ({"body": "{}"}, 422, "version"),
        ({"version": 0, "body": "{}", "all": True}, 422, "all"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_reason(
    client: Client, shop: Shop, letter: Letter, change: dict[str, Any], status: int, said: str
) -> None:
    answer = await (await client(Role.OPERATOR)).post(f"/api/letters/{letter.id}/edit", json=change)
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
    assert await body_of(shop, letter) == BODY


async def test_a_preview_tells_no_right_guess_from_a_wrong_one(client: Client, letter: Letter) -> None:
    http, said = await client(Role.OPERATOR), set[str]()
    for guess in ("hunter2", "hunter3"):
        for change in (
            {"patch": [{"op": "replace", "path": "/password", "value": guess}]},
            {"body": BODY.replace(b"hunter2", guess.encode()).decode()},
        ):
            answer = await http.post(f"/api/letters/{letter.id}/preview", json={"version": 0, **change})
            said.add(f"{answer.status_code} {answer.text}")
    assert len(said) == 1, said


async def test_a_body_over_the_limit_is_refused_and_never_half_kept(client: Client, shop: Shop, letter: Letter) -> None:
    http = await client(Role.OPERATOR)
    answer = await http.post(f"/api/letters/{letter.id}/edit", json={"version": 0, "body": "x" * (50 << 20)})
    assert answer.status_code == 400
    assert "over the limit of 16,777,216" in answer.json()["error"]
    assert await body_of(shop, letter) == BODY


async def test_a_viewer_edits_nothing(client: Client, letter: Letter) -> None:
    http = await client(Role.VIEWER)
    for path, change in (("edit", {"version": 0, "body": "{}"}), ("undo", {"version": 0})):
        assert (await http.post(f"/api/letters/{letter.id}/{path}", json=change)).status_code == 403


async def test_unarchive_and_everything_said(client: Client, shop: Shop, letter: Letter) -> None:
    http = await client(Role.OPERATOR)
    for path in ("letters/archive", "letters/unarchive", "replays"):
        answer = await http.post(f"/api/{path}", json={"query": {}})
        assert (answer.status_code, "an empty query" in answer.json()["error"]) == (400, True)
    assert (await http.post("/api/letters/archive", json={"query": {}, "all": True})).json()["archived"] == 1
    assert (await http.get(f"/api/letters/{letter.id}")).json()["archived_from"] == "pending"
    assert (await http.post("/api/letters/unarchive", json={"ids": [letter.id]})).json() == {"unarchived": 1}
    found = await shop.app.store.letters.get(letter.id)
    assert found is not None
    assert found.state is State.PENDING
