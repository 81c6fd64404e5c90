"""What a message carries through the worker of somebody else proves afterwards that we sent it, all parts of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from redrive.flow.lineage import carried, lineage, sent_back
from redrive.flow.signing import load_keys
from redrive.integrations.bullmq import jobs as bullmq
from redrive.integrations.celery import wire as celery
from redrive.integrations.celery.attempts import with_attempt
from redrive.integrations.dramatiq import envelope as dramatiq
from redrive.integrations.faststream import reading, transport
from redrive.integrations.rq import fields as rq
from redrive.integrations.taskiq import wire as taskiq
from redrive.model import Headers, Message
from redrive.stores.memory import MemoryStore
from redrive.testing.builders import make_failure, make_letter, make_message

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TASK = b'{"task_id":"t-1","task_name":"charge","labels":{},"labels_types":null,"args":[],"kwargs":{}}'
ACTOR = (
    b'{"queue_name":"q","actor_name":"charge","args":[],"kwargs":{},"options":{"retries":2},'
    b'"message_id":"t-1","message_timestamp":1}'
)


def through_celery(sent: Message) -> Headers:
    published = celery.published(replace(sent, headers=(*sent.headers, (celery.DELIVERY, b"{}"))))

    class Request:
        headers = with_attempt(published.headers, make_failure())  # as a retry of it carries them

    return celery.lineage_of(Request, task=sent.source, id=sent.id, now=NOW).headers


def through_dramatiq(sent: Message) -> Headers:
    fields = dramatiq.fields_in(dramatiq.sent_body(replace(sent, body=ACTOR)))
    assert fields is not None
    retried = {dramatiq.OPTION: dramatiq.with_failure(fields["options"], make_failure())}
    return dramatiq.ours_in(retried).lineage


def through_taskiq(sent: Message) -> Headers:
    labels = taskiq.labels_in(taskiq.with_labels(TASK, taskiq.lineage_labels(sent)))
    return tuple((name, str(labels[name]).encode()) for name in taskiq.LINEAGE if name in labels)


def through_rq(sent: Message) -> Headers:
    return rq.lineage_in({name: value for name, value in sent.headers if name in rq.LINEAGE})


def through_bullmq(sent: Message) -> Headers:
    return bullmq.lineage_of(sent.source, sent.id, b"3 " + bullmq.note_of(sent))


def through_faststream(sent: Message) -> Headers:
    entry = {"type": "list", "channel": sent.source, "data": transport.envelope_of(sent)}
    (message,) = reading.messages_in(entry, "", NOW)
    assert (message.id, message.source) == (sent.id, sent.source)
    return message.headers


@pytest.mark.parametrize("version", [0, 3], ids=["as it came", "edited"])
@pytest.mark.parametrize("by_hand", [False, True], ids=["by a policy", "by hand"])
@pytest.mark.parametrize("replay", [None, "r-1"], ids=["retried", "replayed"])
@pytest.mark.parametrize(
    "through",
    [through_celery, through_dramatiq, through_taskiq, through_rq, through_bullmq, through_faststream],
)
async def test_the_proof_of_a_message_comes_through_a_worker_whole(
    through: Callable[[Message], Headers], replay: str | None, by_hand: bool, version: int
) -> None:
    await load_keys(MemoryStore(), NOW)
    letter = make_letter(make_message(id="t-1", source="q"), retries=2, version=version)
    sent = sent_back(letter, now=NOW, replay=replay, by_hand=by_hand)
    came = make_message(id="t-1", source="q", headers=through(sent))
    origin = lineage(came)
    assert origin is not None
    assert (origin.letter, origin.retries, origin.replay) == (letter.id, 2, replay)
    assert (origin.by_hand, origin.version) == (by_hand, version)
    assert lineage(replace(came, headers=carried(came))) == origin
