"""What the doctor says of a queue of SQS, by how it is set up."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from redrive.transports.base import Demand
from redrive.transports.sqs.examining import Found, examined

DAY = timedelta(days=1)
DEMAND = Demand("orders", 5, timedelta(seconds=30), timedelta(minutes=10), timedelta(minutes=5))
FINE = {
    "RedrivePolicy": json.dumps({"deadLetterTargetArn": "arn:aws:sqs:x:1:dlq", "maxReceiveCount": 10}),
    "VisibilityTimeout": "30",
    "MessageRetentionPeriod": "345600",
}
DEAD = {"MessageRetentionPeriod": "1209600"}


def said(demand: Demand = DEMAND, *, fifo: bool = False, dead: dict[str, str] | None = None, **changes: Any) -> str:
    found = Found("orders", "http://q", FINE | changes, DEAD if dead is None else dead, "http://dlq")
    advice = list(examined(found, demand, fifo=fifo))
    assert all(each.mend for each in advice)
    return " | ".join(each.text for each in advice)


def policy(count: object) -> str:
    return json.dumps({"deadLetterTargetArn": "a:b", "maxReceiveCount": count})


def test_nothing_is_said_of_a_queue_that_is_set_up_well() -> None:
    assert said() == said(fifo=True) == ""


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"RedrivePolicy": ""}, "no redrive policy"),
        ({"RedrivePolicy": "{nonsense"}, "no redrive policy"),
        ({"RedrivePolicy": policy(1)}, "maxReceiveCount 1:"),
        ({"RedrivePolicy": policy("4")}, "maxReceiveCount 4"),
        ({"VisibilityTimeout": "10"}, "visibility timeout of 10 s"),
        ({"MessageRetentionPeriod": "60"}, "keeps messages for 60 s"),
    ],
)
def test_each_thing_that_is_wrong_is_said(changes: dict[str, Any], text: str) -> None:
    assert text in said(**changes)


def test_in_fifo_queues_every_attempt_is_a_receive_and_retention_counts_all_waits() -> None:
    assert said(RedrivePolicy=policy(5)) == ""
    assert "every attempt is a receive" in said(fifo=True, RedrivePolicy=policy(5))
    assert said(MessageRetentionPeriod="400") == ""
    assert "delete it while it waits" in said(fifo=True, MessageRetentionPeriod="400")


def test_a_dead_letter_queue_that_forgets_sooner_than_its_source_is_said() -> None:
    assert "dead-letter queue of orders keeps messages for 60 s" in said(dead={"MessageRetentionPeriod": "60"})


def test_a_handler_that_may_take_longer_than_sqs_lends_a_message_is_said() -> None:
    long = Demand("orders", 5, timedelta(hours=12), timedelta(), timedelta())
    assert "12 hours at most" in said(long, VisibilityTimeout="43200", MessageRetentionPeriod="1209600")
