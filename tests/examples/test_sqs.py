"""examples/sqs_orders.py, on ElasticMQ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.servers.elasticmq import ElasticMQ
from tests.trouble.sqs import private_url

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_one_order_is_charged_one_retried_and_one_replayed(elasticmq_server: ElasticMQ, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "sqs_orders.py"), private_url(elasticmq_server)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "order 1 is charged (attempt 1)",
        "order 2 is charged (attempt 2)",
        "order 3 is charged (attempt 1)",
        "order-3 is buried: order 3 has no price that is a number",
        "order-3 is resolved",
    ]
