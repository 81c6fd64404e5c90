"""What dies in a worker of Celery is a letter, whatever it died of, and its replay goes on where it died."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from celery import Celery, chain, chord
from kombu import Connection, Producer

from redrive.errors import NoWayBack
from redrive.forensics.redact import Redactor
from redrive.integrations.celery import RedriveCelery
from redrive.model import Letter, Reason, State
from redrive.stores.base import EntryStatus
from redrive.testing.waiting import until
from tests.integrations.celery.world import Shop, touch

TASKS = "tests.integrations.celery.shop"


def lines(place: Path) -> list[str]:
    return place.read_text().splitlines() if place.exists() else []


async def test_a_task_that_fails_is_a_letter_with_all_that_celery_knows_of_it(on_rabbitmq: Shop, mended: Path) -> None:
    id = on_rabbitmq.send("charge", str(mended), 7, kwargs={"password": "hunter2"})
    letter = await on_rabbitmq.letter(id)
    assert letter.message.source == f"{TASKS}.charge"
    assert (letter.last.type, letter.last.message, letter.last.attempt) == ("ValueError", "card declined", 1)
    assert letter.last.frames == ("shop:charge",)
    assert "raise ValueError" in letter.last.stack
    assert letter.last.worker.endswith("@shop")
    assert (letter.transport, letter.state, letter.reason) == ("celery", State.PENDING, Reason.PERMANENT)
    args, kwargs, _ = msgspec.json.decode(letter.message.body)
    assert (args, kwargs) == ([str(mended), 7], {"password": "hunter2"})
    assert letter.message.header("id") == letter.message.header("root_id") == id.encode()
    assert letter.message.correlation_id == id
    shown = Redactor()
    texts = [shown.body(letter.message.body), *(text for _, text in shown.headers(letter.message.headers))]
    assert not any("hunter2" in text for text in texts)


async def test_a_replay_has_the_same_id_and_its_success_resolves_the_letter(on_rabbitmq: Shop, mended: Path) -> None:
    id = on_rabbitmq.send("charge", str(mended))
    letter = await on_rabbitmq.letter(id)
    await on_rabbitmq.replay(letter.id)
    again = await on_rabbitmq.letter(id, lambda each: each.state is State.EXHAUSTED)
    assert [failure.message for failure in again.failures] == ["card declined"] * 2
    assert again.message == letter.message
    touch(mended)
    report = await on_rabbitmq.replay(letter.id)
    resolved = await on_rabbitmq.resolved(id)
    assert (resolved.resends, len(resolved.failures)) == (2, 2)
    await until(lambda: on_rabbitmq.client.AsyncResult(id).state == "SUCCESS", what="its result is replaced")
    assert report.entries in ({EntryStatus.SENT: 1}, {EntryStatus.RESOLVED: 1})  # the worker may be quicker than we are


async def test_every_retry_is_an_attempt_and_a_replay_has_all_of_them_again(on_rabbitmq: Shop, mended: Path) -> None:
    id = on_rabbitmq.send("flaky", str(mended))
    letter = await on_rabbitmq.letter(id)
    assert [(failure.message, failure.attempt) for failure in letter.failures] == [
        *(("attempt 0", 1), ("attempt 1", 2), ("attempt 2", 3))
    ]
    assert all("raise ConnectionError" in failure.stack for failure in letter.failures)
    assert all(failure.worker.endswith("@shop") for failure in letter.failures)
    assert (letter.reason, letter.category) == (Reason.ATTEMPTS, "network")
    assert (letter.message.header("mine"), letter.message.header("redrive-attempts")) == (b"kept", None)
    await on_rabbitmq.replay(letter.id)
    again = await on_rabbitmq.letter(id, lambda each: each.state is State.EXHAUSTED)
    assert [failure.attempt for failure in again.failures] == [1, 2, 3, 1, 2, 3]
    touch(mended)
    await on_rabbitmq.replay(letter.id)
    await on_rabbitmq.resolved(id)


async def test_retries_that_were_raised_nowhere_or_come_by_themselves_are_attempts_too(on_rabbitmq: Shop) -> None:
    asked, automatic = on_rabbitmq.send("asks_again"), on_rabbitmq.send("automatic")
    assert [failure.message for failure in (await on_rabbitmq.letter(asked)).failures] == ["raised nowhere"] * 2
    assert [failure.message for failure in (await on_rabbitmq.letter(automatic)).failures] == ["again"] * 2


async def test_a_chain_goes_on_when_the_task_it_broke_at_is_replayed(
    on_rabbitmq: Shop, mended: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    steps = chain(on_rabbitmq.signature("charge", str(mended)), on_rabbitmq.signature("follow", str(place)))
    last = steps.apply_async()
    first = last.parent.id
    letter = await on_rabbitmq.letter(first)
    embed = msgspec.json.decode(letter.message.body)[2]
    assert [step["task"] for step in embed["chain"]] == [f"{TASKS}.follow"]
    assert letter.message.correlation_id == first
    touch(mended)
    await on_rabbitmq.replay(letter.id)
    await until(lambda: lines(place) == ["follow charged"], what="the chain goes on")
    await until(lambda: on_rabbitmq.client.AsyncResult(last.id).state == "SUCCESS", what="its result is replaced")


async def test_a_member_of_a_chord_that_dies_after_its_retries_keeps_its_chord(
    on_rabbitmq: Shop, mended: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    header = [on_rabbitmq.signature("add", 1, 2), on_rabbitmq.signature("flaky", str(mended))]
    started = chord(header)(on_rabbitmq.signature("gather", str(place)))
    [member] = [child.id for child in started.parent.children if child.id != started.parent.children[0].id]
    letter = await on_rabbitmq.letter(member)
    assert msgspec.json.decode(letter.message.body)[2]["chord"]["task"] == f"{TASKS}.gather"
    assert letter.message.header("group") == started.parent.id.encode()
    assert len(letter.failures) == 3
    touch(mended)
    await on_rabbitmq.replay(letter.id)
    await on_rabbitmq.resolved(member)


async def test_rejected_timed_out_and_lost_tasks_are_letters(on_rabbitmq: Shop, mended: Path) -> None:
    rejected, soft = on_rabbitmq.send("rejects", ""), on_rabbitmq.send("slow")
    hard, lost = on_rabbitmq.send("hangs"), on_rabbitmq.send("dies", str(mended))
    letter = await on_rabbitmq.letter(rejected)
    assert (letter.last.type, letter.reason) == ("celery.exceptions.Reject", Reason.PERMANENT)
    assert (await on_rabbitmq.letter(soft)).last.type == "billiard.exceptions.SoftTimeLimitExceeded"
    letter = await on_rabbitmq.letter(hard)
    assert (letter.last.type, len(letter.failures)) == ("billiard.exceptions.TimeLimitExceeded", 1)
    letter = await on_rabbitmq.letter(lost)
    assert (letter.last.type, letter.reason) == ("billiard.exceptions.WorkerLostError", Reason.CRASHED)
    assert "SIGKILL" in letter.last.message
    touch(mended)
    await on_rabbitmq.replay(letter.id)
    await on_rabbitmq.resolved(lost)


async def test_errors_that_cannot_be_pickled_or_shown_and_tasks_of_any_base_are_letters(on_rabbitmq: Shop) -> None:
    strange, based = on_rabbitmq.send("unspeakable"), on_rabbitmq.send("of_a_base")
    assert (await on_rabbitmq.letter(strange)).last.type == f"{TASKS}.Unspeakable"
    assert (await on_rabbitmq.letter(based)).last.type == "KeyError"


async def test_what_is_ignored_or_succeeds_is_no_letter(on_rabbitmq: Shop) -> None:
    ids = [on_rabbitmq.send("ignores"), on_rabbitmq.send("add", 1, 2)]
    assert on_rabbitmq.client.AsyncResult(ids[1]).get(timeout=60) == 3
    await on_rabbitmq.letter(on_rabbitmq.send("of_a_base"))  # whatever was before it has been told
    assert not [letter for letter in await on_rabbitmq.letters() if letter.message.id in ids]


def publish(shop: Shop, body: bytes | str, content_type: str, headers: dict[str, Any], **properties: Any) -> None:
    with Connection(shop.broker) as connection, connection.channel() as channel:
        Producer(channel).publish(
            body,
            routing_key=shop.queue,
            content_type=content_type,
            content_encoding="utf-8",
            headers=headers,
            **properties,
        )


async def of_source(shop: Shop, source: str) -> Letter:
    found: list[Letter] = []

    async def is_there() -> bool:
        found[:] = [letter for letter in await shop.letters() if letter.message.source == source]
        return bool(found)

    await until(is_there, what=f"a letter of {source}")
    return found[0]


async def test_what_no_task_can_be_made_of_is_a_letter_and_ends_no_worker(on_rabbitmq: Shop) -> None:
    unknown = on_rabbitmq.client.send_task("somebody.elses", args=[1]).id
    letter = await on_rabbitmq.letter(unknown)
    assert (letter.message.source, letter.last.type) == ("somebody.elses", "celery.exceptions.NotRegistered")
    publish(on_rabbitmq, b"{nonsense", "application/json", {"task": f"{TASKS}.add", "id": "bad-json"})
    assert (await on_rabbitmq.letter("bad-json")).reason is Reason.UNDECODABLE
    publish(on_rabbitmq, b"7", "application/json", {"task": f"{TASKS}.add", "id": "no-triple"})
    assert (await on_rabbitmq.letter("no-triple")).reason is Reason.UNDECODABLE
    publish(on_rabbitmq, b"[[], {}, {}]", "application/json", {"task": f"{TASKS}.add"}, message_id="no-id")
    assert (await on_rabbitmq.letter("no-id")).message.source == f"{TASKS}.add"
    publish(on_rabbitmq, b"x: 1", "application/x-yaml", {"task": f"{TASKS}.add", "id": "not-allowed"})
    assert (await on_rabbitmq.letter("not-allowed")).last.type == "kombu.exceptions.ContentDisallowed"
    publish(on_rabbitmq, b'"hello"', "application/json", {})
    letter = await of_source(on_rabbitmq, on_rabbitmq.queue)
    assert (letter.message.body, letter.last.type) == (
        b'"hello"',
        "redrive.integrations.celery.consumer.UnknownMessage",
    )
    assert on_rabbitmq.client.AsyncResult(on_rabbitmq.send("add", 2, 2)).get(timeout=60) == 4


async def test_pickled_and_compressed_bodies_go_back_byte_for_byte(on_rabbitmq: Shop, mended: Path) -> None:
    pickled = on_rabbitmq.send("charge", str(mended), {1, 2}, serializer="pickle")
    small = on_rabbitmq.send("charge", str(mended), "x" * 1000, compression="zlib", priority=3)
    letters = [await on_rabbitmq.letter(id) for id in (pickled, small)]
    assert letters[0].message.body.startswith(b"\x80")
    touch(mended)
    await on_rabbitmq.replay(*(letter.id for letter in letters))
    for id in (pickled, small):
        await on_rabbitmq.resolved(id)


async def test_large_arguments_are_kept_and_go_back(on_rabbitmq: Shop, mended: Path) -> None:
    id = on_rabbitmq.send("charge", str(mended), "x" * 5_000_000)
    letter = await on_rabbitmq.letter(id)
    assert len(letter.message.body) > 5_000_000
    touch(mended)
    await on_rabbitmq.replay(letter.id)
    await on_rabbitmq.resolved(id)


async def test_a_message_of_protocol_1_is_a_letter_and_goes_back_as_it_was(on_rabbitmq: Shop, mended: Path) -> None:
    body = {"task": f"{TASKS}.charge", "id": "protocol-1", "args": [str(mended)], "kwargs": {}, "retries": 0}
    publish(on_rabbitmq, msgspec.json.encode(body), "application/json", {})
    letter = await on_rabbitmq.letter("protocol-1")
    assert (letter.message.source, msgspec.json.decode(letter.message.body)) == (f"{TASKS}.charge", body)
    touch(mended)
    await on_rabbitmq.replay(letter.id)
    await on_rabbitmq.resolved("protocol-1")


async def test_a_process_without_the_transport_says_what_to_set(on_rabbitmq: Shop, mended: Path) -> None:
    letter = await on_rabbitmq.letter(on_rabbitmq.send("charge", str(mended)))
    with pytest.raises(NoWayBack, match=r"set `transports.celery` to celery\+amqp://"):
        await on_rabbitmq.replay(letter.id, name="other")


async def test_a_revoked_task_is_no_letter(on_rabbitmq: Shop, mended: Path) -> None:
    """Somebody has said that it is not to run: nothing has failed."""
    id = "revoked-before-it-came"
    await on_rabbitmq.letter(on_rabbitmq.send("charge", str(mended)))  # a worker listens
    assert on_rabbitmq.client.control.revoke(id, reply=True, timeout=10, limit=1)
    on_rabbitmq.send("charge", str(mended), task_id=id)
    await until(lambda: on_rabbitmq.client.AsyncResult(id).state == "REVOKED", what="it is revoked")
    await on_rabbitmq.letter(on_rabbitmq.send("charge", str(mended)))
    assert id not in {letter.message.id for letter in await on_rabbitmq.letters()}


async def test_a_task_with_a_countdown_is_a_letter_and_its_replay_goes_at_once(on_rabbitmq: Shop, mended: Path) -> None:
    id = on_rabbitmq.send("charge", str(mended), countdown=0.1)
    letter = await on_rabbitmq.letter(id)
    assert letter.message.header("eta") is not None
    touch(mended)
    await on_rabbitmq.replay(letter.id)
    assert (await on_rabbitmq.resolved(id)).message == letter.message


def test_an_eager_task_raises_where_it_is_called_and_is_no_letter(tmp_path: Path) -> None:
    """It never was a message: there is nothing to send back."""
    app = Celery("eager", broker="memory://", set_as_current=False)
    app.conf.update(task_always_eager=True, task_eager_propagates=True)
    RedriveCelery(app, store=f"sqlite:///{tmp_path / 'letters.db'}", spool=tmp_path / "spool")

    def fails() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        app.task(fails).delay()
    assert list(tmp_path.iterdir()) == []
