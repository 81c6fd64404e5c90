"""A plain loop around boto3: receive ten, handle each, delete; as AWS' own documentation has it, and with one delete
for the ten."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.peers import needed

_PATIENCE = 120  # seconds


def client(endpoint: str) -> Any:
    boto3 = needed("boto3")
    return boto3.client(
        "sqs", endpoint_url=endpoint, region_name="elasticmq", aws_access_key_id="x", aws_secret_access_key="x"
    )


def consume(endpoint: str, queue: str, total: int, *, in_batches: bool) -> float:
    """Messages a second, until the last is deleted."""
    sqs = client(endpoint)
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    began, left = time.perf_counter(), total
    while left > 0:
        if time.perf_counter() - began > _PATIENCE:
            raise RuntimeError(f"boto3 has {left} of {total} messages left after {_PATIENCE} s")
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        found = answer.get("Messages", ())
        if in_batches and found:
            entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(found)]
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        elif found:
            for each in found:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
        left -= len(found)
    return total / (time.perf_counter() - began)
