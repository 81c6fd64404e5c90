"""Seeing and acting over HTTP."""

import json

import pytest

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.model import letter_id
from redrive.systems.pipeline import PipeStream
from redrive.telemetry.events import LetterResolved
from redrive.testing.builders import make_letter, make_message
from tests.admin.conftest import Client, Shop


async def test_letters_are_listed_filtered_and_paged(client: Client, buried: list[str]) -> None:
    http = await client(Role.VIEWER)
    first = (await http.get("/api/letters", params={"limit": 3})).json()
    rest = (await http.get("/api/letters", params={"limit": 3, "after": first["after"]})).json()
    seen = [one["message_id"] for one in first["letters"] + rest["letters"]]
    assert sorted(seen) == sorted(buried)
    assert rest["after"] is None

    async def found(**filters: str | list[str]) -> list[str]:
        return sorted(one["message_id"] for one in (await http.get("/api/letters", params=filters)).json()["letters"])

    assert await found(tenants="acme") == ["m0", "m1"]
    assert await found(categories=["permanent", "validation"]) == ["m0", "m1", "m2", "m3"]
    assert await found(categories="validation", states=["pending", "exhausted"]) == ["m1", "m3"]
    assert await found(text="order 3") == ["m3"]
    assert await found(code="503") == ["m0", "m2"]
    assert await found(error_type="Permanent") == await found(error_type="redrive.errors.Permanent") == ["m0", "m2"]
    assert await found(error_type="errors.Permanent") == []
    assert await found(since="2001-01-01T00:00:00Z", before="2001-01-02T00:00:00Z") == []
    assert await found(message_ids=["m0", "m9"]) == ["m0"]


async def test_a_letter_is_shown_whole_and_redacted(client: Client, buried: list[str]) -> None:
    http = await client(Role.VIEWER)
    answer = await http.get(f"/api/letters/{letter_id('orders', 'm0')}")
    letter = answer.json()
    assert letter["message_id"] == "m0"
    assert letter["failures"][0]["stack"]
    assert letter["body"] == '{"id":0}'
    assert "hunter2" not in answer.text
    assert (await http.get("/api/letters/m0")).json() == letter


async def test_a_body_whose_schema_is_known_is_shown_in_it(client: Client, tokens: Tokens, shop: Shop) -> None:
    body = PipeStream(stream_id="s-1", metadata={"password": "hunter2"}).SerializeToString()
    message = make_message(id="streamed", source="docs.ocr", body=body)
    await shop.app.store.letters.record(
        [make_letter(message, transport="pipeline"), make_letter(make_message(id="m0"))]
    )
    viewer = await client(Role.VIEWER)
    answer = await viewer.get("/api/letters/streamed")
    assert "hunter2" not in answer.text
    decoded = answer.json()["decoded"]
    assert (decoded["format"], decoded["schema"]) == ("Protobuf", "redrive.pipeline.PipeStream")
    assert json.loads(decoded["text"]) == {"stream_id": "s-1", "metadata": {"password": "[redacted]"}}
    assert (await viewer.get("/api/letters/m0")).json()["decoded"] is None
    assert (await viewer.get("/api/letters/streamed/message")).json()["decoded"] is None
    seer = await client((await tokens.create("seer", Role.VIEWER, unmask=True))[1])
    shown = (await seer.post("/api/letters/streamed/unmask", json={"reason": "ticket 4711"})).json()
    assert json.loads(shown["decoded"]["text"])["metadata"] == {"password": "hunter2"}


async def test_groups_count_their_letters_and_keep_secrets(client: Client, buried: list[str]) -> None:
    answer = await (await client(Role.VIEWER)).get("/api/groups", params={"states": "pending"})
    assert sorted(one["count"] for one in answer.json()) == [2, 2]
    assert answer.json()[0]["sources"] == ["orders"]
    assert "hunter2" not in answer.text


async def test_stats_sources_and_me(client: Client, shop: Shop, buried: list[str]) -> None:
    await shop.app.send("emails", "x")
    http = await client(Role.VIEWER)
    stats = (await http.get("/api/stats")).json()
    assert stats["states"] == {"pending": 4}
    assert {one["source"]: one["queued"] for one in stats["sources"]}["emails"]["ready"] == 1
    known = (await http.get("/api/sources")).json()
    assert (known["sources"], known["unanswered"], known["breakers"]) == (["emails", "orders"], [], [])
    assert [(one["source"], one["workers"], one["rate"]) for one in known["details"]] == [
        ("emails", 0, 0),
        ("orders", 0, 0),
    ]
    me = (await http.get("/api/me")).json()
    assert (me["name"], me["role"]) == ("viewer", "viewer")
    assert "digest" not in me


async def test_retry_sends_back_and_the_success_resolves(client: Client, shop: Shop, buried: list[str]) -> None:
    http = await client(Role.OPERATOR)
    report = (await http.post("/api/letters/retry", json={"ids": ["m0", letter_id("orders", "m1")]})).json()
    assert report["replay"]["total"] == 2
    assert report["entries"] == {"sent": 2}
    shop.broken = False
    await shop.until(LetterResolved, 2)
    assert sorted(shop.handled) == [0, 1]
    after = (await http.get(f"/api/replays/{report['replay']['id']}")).json()
    assert after["entries"] == {"resolved": 2}


async def test_archive_by_ids_or_by_query(client: Client, buried: list[str]) -> None:
    http = await client(Role.OPERATOR)
    by_id = await http.post("/api/letters/archive", json={"ids": [letter_id("orders", "m0")]})
    assert by_id.json() == {"archived": 1, "ids": [letter_id("orders", "m0")]}
    rest = (await http.post("/api/letters/archive", json={"query": {"sources": ["orders"]}})).json()
    assert rest["archived"] == 3
    assert sorted(rest["ids"]) == sorted(letter_id("orders", f"m{n}") for n in (1, 2, 3)), "and not what was before"
    back = await http.post("/api/letters/unarchive", json={"ids": rest["ids"]})
    assert back.json() == {"unarchived": 3}
    assert (await http.get("/api/stats")).json()["states"] == {"archived": 1, "pending": 3}


async def test_archiving_more_than_an_answer_can_name_says_how_many(
    client: Client, buried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.admin.letters._TOLD", 3)
    answer = await (await client(Role.OPERATOR)).post("/api/letters/archive", json={"query": {}, "all": True})
    assert answer.json() == {"archived": 4, "ids": None}


@pytest.mark.parametrize("body", [{}, {"ids": ["m0"], "query": {}}])
async def test_archive_wants_one_selection(client: Client, buried: list[str], body: dict[str, object]) -> None:
    answer = await (await client(Role.OPERATOR)).post("/api/letters/archive", json=body)
    assert answer.status_code == 422
    assert "not by both" in answer.json()["error"]


async def test_the_audit_trail_names_who_did_it(client: Client, buried: list[str]) -> None:
    await (await client(Role.OPERATOR)).post("/api/letters/archive", json={"ids": [letter_id("orders", "m0")]})
    (line,) = (await (await client(Role.ADMIN)).get("/api/audit")).json()
    assert line["action"] == "archive"
    assert line["actor"].startswith("operator (")
