"""Dead-letter queues of Amazon SQS into a store, and back to the queues that they came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from redrive.collect.aws import envelope, failed_by_attributes, lambda_record
from redrive.forensics.query import Query
from redrive.model import Category, State
from redrive.service import Service
from redrive.testing.builders import make_message
from tests.actors import acting
from tests.cli.world import Shell
from tests.servers.elasticmq import ElasticMQ
from tests.trouble.helpers import letters, make_app
from tests.trouble.sqs import new_prefix, others_client, private_url

ARN = "arn:aws:sqs:elasticmq:000000000000:"
ATTRIBUTES: dict[str, Any] = {
    "tenant": {"DataType": "String", "StringValue": "acme"},
    "weight": {"DataType": "Number.float", "StringValue": "1.50"},
    "raw": {"DataType": "Binary", "BinaryValue": b"text that is meant as bytes"},
}


def collected(place: Path, url: str, *more: str) -> int:
    store = f"sqlite:///{place / 'letters.db'}"
    done = Shell(place).process("--store", store, "collect", url, *more, "--json")
    count: int = json.loads(done.stdout)["collected"]
    return count


def named(url: str, queue: str) -> str:
    """The URL of that queue, as `redrive collect` takes it."""
    address, _, options = url.partition("?")
    return f"{address}/{queue}?{options}"


async def die(client: Any, server: ElasticMQ, prefix: str, bodies: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """Make a queue with a redrive policy, and let these messages be received too often. The URLs of both queues."""
    dead = (await client.create_queue(QueueName=f"{prefix}orders-dlq"))["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}{prefix}orders-dlq", "maxReceiveCount": 2})
    made = await client.create_queue(QueueName=f"{prefix}orders", Attributes={"RedrivePolicy": policy})
    source = made["QueueUrl"]
    for body, attributes in bodies.items():
        await client.send_message(QueueUrl=source, MessageBody=body, MessageAttributes=attributes)
    for _ in range(3 * len(bodies) + 3):
        await client.receive_message(QueueUrl=source, VisibilityTimeout=0, MaxNumberOfMessages=10)
    return source, dead


async def received(client: Any, queue: str) -> list[dict[str, Any]]:
    answer = await client.receive_message(
        QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=5, MessageAttributeNames=["All"]
    )
    found: list[dict[str, Any]] = answer.get("Messages", [])
    return found


async def test_what_sqs_has_dead_lettered_is_explained_and_goes_back_to_its_queue_as_it_was(
    elasticmq_server: ElasticMQ, tmp_path: Path
) -> None:
    prefix = new_prefix()
    url = private_url(elasticmq_server, prefix=prefix)
    async with others_client(elasticmq_server) as client:
        source, _ = await die(client, elasticmq_server, prefix, {'{"order": 1}': ATTRIBUTES, "plain": {}})
        assert collected(tmp_path, named(url, "orders-dlq")) == 2
        assert collected(tmp_path, named(url, "orders-dlq")) == 0
        async with make_app(tmp_path, transport=url, store=f"sqlite:///{tmp_path / 'letters.db'}") as app:
            found = {letter.message.body: letter for letter in await letters(app)}
            letter = found[b'{"order": 1}']
            assert (letter.message.source, letter.last.type) == ("orders", "sqs.MaxReceiveCount")
            assert "orders" in letter.last.message
            assert letter.message.header("tenant") == b"acme"
            app.declare("orders")
            service = Service(app)
            await service.run_replay((await service.replay(Query(ids=(letter.id,)), actor=acting("test"))).id)
            [sent] = await letters(app, Query(ids=(letter.id,)))
            assert sent.state is State.SENT
        [back] = await received(client, source)
        assert back["Body"] == '{"order": 1}'
        assert {name: back["MessageAttributes"][name] for name in ATTRIBUTES} == ATTRIBUTES


async def test_what_dies_again_after_a_replay_joins_its_letter(elasticmq_server: ElasticMQ, tmp_path: Path) -> None:
    prefix = new_prefix()
    url = private_url(elasticmq_server, prefix=prefix)
    async with others_client(elasticmq_server) as client:
        source, _ = await die(client, elasticmq_server, prefix, {"again": {}})
        collected(tmp_path, named(url, "orders-dlq"))
        async with make_app(tmp_path, transport=url, store=f"sqlite:///{tmp_path / 'letters.db'}") as app:
            app.declare("orders")
            service = Service(app)
            await service.run_replay((await service.replay(Query(), every=True, actor=acting("test"))).id)
        for _ in range(6):
            await client.receive_message(QueueUrl=source, VisibilityTimeout=0)
        assert collected(tmp_path, named(url, "orders-dlq")) == 1
        async with make_app(tmp_path, transport=url, store=f"sqlite:///{tmp_path / 'letters.db'}") as app:
            [letter] = await letters(app)
            assert (letter.state, len(letter.failures)) == (State.EXHAUSTED, 2)


async def test_a_message_with_all_ten_attributes_goes_back_with_all_ten(
    elasticmq_server: ElasticMQ, tmp_path: Path
) -> None:
    prefix = new_prefix()
    url = private_url(elasticmq_server, prefix=prefix)
    ten: dict[str, Any] = {f"a{n}": {"DataType": "String", "StringValue": f"{n}"} for n in range(10)}
    async with others_client(elasticmq_server) as client:
        source, _ = await die(client, elasticmq_server, prefix, {"ten": ten})
        assert collected(tmp_path, named(url, "orders-dlq")) == 1
        async with make_app(tmp_path, transport=url, store=f"sqlite:///{tmp_path / 'letters.db'}") as app:
            app.declare("orders")
            service = Service(app)
            await service.run_replay((await service.replay(Query(), every=True, actor=acting("test"))).id)
        [back] = await received(client, source)
        assert back["MessageAttributes"] == ten


async def test_a_queue_that_is_not_there_is_said_and_not_made(elasticmq_server: ElasticMQ, tmp_path: Path) -> None:
    url = private_url(elasticmq_server)
    store = f"sqlite:///{tmp_path / 'letters.db'}"
    done = Shell(tmp_path).process("--store", store, "collect", named(url, "nope"), code=None)
    assert done.returncode != 0
    assert b"there is no queue 'nope'" in done.stderr
    async with others_client(elasticmq_server) as client:
        prefix = url.partition("prefix=")[2].partition("&")[0]
        assert not (await client.list_queues(QueueNamePrefix=prefix)).get("QueueUrls")


# -- what others write into a queue ------------------------------------------------------------------------------------

RECORD = {
    "version": "1.0",
    "timestamp": "2030-01-01T00:00:05.000Z",
    "requestContext": {
        "requestId": "r-1",
        "functionArn": "arn:aws:lambda:eu-central-1:1:function:charge:$LATEST",
        "condition": "RetriesExhausted",
        "approximateInvokeCount": 3,
    },
    "requestPayload": {"order": 7},
    "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
    "responsePayload": {
        "errorType": "ConnectionError",
        "errorMessage": "the bank does not answer",
        "stackTrace": ['  File "/var/task/app.py", line 3, in handler\n    charge()\n'],
    },
}


def test_lambdas_record_of_a_failure_gives_cause_event_and_function() -> None:
    said = lambda_record(make_message(body=json.dumps(RECORD).encode()))
    assert said is not None
    assert (said.message.id, said.message.body, said.source) == ("r-1", b'{"order":7}', "charge")
    assert (said.failure.type, said.failure.message) == ("ConnectionError", "the bank does not answer")
    assert (said.failure.attempt, said.failure.category) == (3, Category.NETWORK)
    assert "app.py" in said.failure.stack
    assert said.place == "arn:aws:lambda:eu-central-1:1:function:charge:$LATEST/r-1"


def test_a_record_of_a_function_that_timed_out_says_so() -> None:
    payload = {"errorMessage": "2030-01-01T00:00:05Z r-1 Task timed out after 3.00 seconds"}
    said = lambda_record(make_message(body=json.dumps({**RECORD, "responsePayload": payload}).encode()))
    assert said is not None
    assert said.failure.type == "lambda.RetriesExhausted"
    assert "timed out" in said.failure.message


def test_what_only_looks_like_a_record_is_a_plain_message() -> None:
    for body in (b"", b"{", b"[]", b'{"requestContext": 1, "requestPayload": 2}', b'{"requestContext": {}}', b"\xff{"):
        assert lambda_record(make_message(body=body)) is None
        assert envelope(make_message(body=body)) is None


def test_attributes_of_lambda_sns_and_eventbridge_say_why_and_do_not_go_back() -> None:
    about = (("ErrorCode", b"200"), ("ErrorMessage", b"out of memory"), ("RequestID", b"r-1"))
    types = ("redrive-sqs-types", b"ErrorCode=Number,weight=Number")
    message = make_message(headers=(*about, ("weight", b"1"), types))
    said = failed_by_attributes(message)
    assert said is not None
    assert (said.failure.type, said.failure.message) == ("lambda.InvocationFailed", "out of memory")
    assert said.message.headers == (("weight", b"1"), ("redrive-sqs-types", b"weight=Number"))
    topic = json.dumps({"Type": "Notification", "TopicArn": "arn:aws:sns:x:1:news", "MessageId": "n", "Message": "hi"})
    said = failed_by_attributes(replace(message, body=topic.encode()))
    assert said is not None
    assert (said.failure.type, said.place) == ("sns.DeliveryFailed", "arn:aws:sns:x:1:news/n")
    bridge = (("ERROR_CODE", b"NO_PERMISSIONS"), ("ERROR_MESSAGE", b"denied"), ("RULE_ARN", b"rule"))
    said = failed_by_attributes(make_message(headers=(*bridge, ("TARGET_ARN", b"target"), ("RETRY_ATTEMPTS", b"3"))))
    assert said is not None
    assert (said.failure.type, said.failure.attempt, said.place) == ("eventbridge.NO_PERMISSIONS", 4, "rule → target")
    assert said.message.headers == ()
    assert failed_by_attributes(make_message(headers=(("ErrorMessage", b"their own header"),))) is None
